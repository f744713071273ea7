"""The policies that are compared, by name, at the settings that ``tuning`` found for them."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.simulation.policies import Policy
import yaml

#: Settings by policy, and in its first line the command that made them.
TUNED_FILE = Path(__file__).with_name('tuned.yaml')
_TUNED: dict[str, dict[str, float]] = yaml.safe_load(TUNED_FILE.read_text())

#: Baselines that scale by a rule get the same routing: the first pool with a free replica.
POLICIES = {policy.name: policy.tuned(**_TUNED[policy.name]) for policy in (
    Policy('laimr', 'laimr', 'laimr'),
    Policy('laimr_paper', 'laimr_paper', 'laimr_paper'),
    *(Policy(scaling, 'overflow', scaling) for scaling in (
        'reactive_latency', 'cpu_hpa', 'queue_length', 'two_window', 'capacity_rule',
        'sqrt_staffing', 'clairvoyant')),
)}
