"""The policies that are compared, by name, at the settings that ``tuning`` found for them."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.simulation import policies as simulation
import yaml

#: Settings by policy, and in its first line the command that made them.
TUNED_FILE = Path(__file__).with_name('tuned.yaml')
_TUNED: dict[str, dict[str, float]] = yaml.safe_load(TUNED_FILE.read_text())

POLICIES = {name: policy.tuned(**_TUNED[name])
            for name, policy in simulation.POLICIES.items()}
