"""
What the controller's settings are worth: ``python -m benchmarks.settings [--json FILE]``.

The SLO margin and the windows of the arrival rate are changed one at a time, in simulated worlds
of the evaluation's scenarios (the same controller, common random numbers). For each value: the
share of frames on time and the replica-seconds, means over seeds. docs/latency.md shows a run.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.report import add_arguments, write
from laimr_ros.simulation.engine import simulate
from laimr_ros.simulation.policies import POLICIES
from laimr_ros.simulation.scenario_files import load_scenario

WORLDS = (('paper', 2.0), ('paper', 6.0), ('surge', 3.0), ('drift', 4.0))
SETTINGS = {
    'slo_margin': (0.7, 0.8, 0.9, 1.0),
    'fast_window': (1.0, 2.0, 4.0),
    'slow_window': (15.0, 30.0, 60.0),
}


def main() -> int:
    """Simulate; return the exit status."""
    parser = argparse.ArgumentParser(prog='benchmarks.settings', description=__doc__)
    add_arguments(parser)
    parser.add_argument('--seeds', type=int, default=3, help='runs of each (default: 3)')
    args = parser.parse_args()
    figures: dict[str, float] = {}
    for name, rate in WORLDS:
        scenario = load_scenario(name).at_rate(rate)
        for setting, values in SETTINGS.items():
            for value in values:
                policy = POLICIES['laimr'].tuned(**{setting: value})
                runs = [simulate(scenario, policy, seed) for seed in range(1, args.seeds + 1)]
                key = f'{name}_{rate:g}_{setting}_{value:g}'
                figures[f'{key}_on_time'] = sum(run.on_time() for run in runs) / len(runs)
                figures[f'{key}_replica_s'] = sum(
                    run.summary()['replica_seconds'] for run in runs) / len(runs)
                print(f'{key}: {figures[f"{key}_on_time"]:.2%} on time, '
                      f'{figures[f"{key}_replica_s"]:.0f} replica-seconds',
                      file=sys.stderr, flush=True)
    write(figures, args)
    return 0


if __name__ == '__main__':
    sys.exit(main())
