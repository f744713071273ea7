"""The policies that are compared, by name."""

from __future__ import annotations

from laimr_ros.simulation.policies import Policy

#: Baselines that scale by a rule get the same routing: the first pool with a free replica. All
#: are at the defaults of their rules.
POLICIES = {policy.name: policy for policy in (
    Policy('laimr', 'laimr', 'laimr'),
    Policy('laimr_paper', 'laimr_paper', 'laimr_paper'),
    *(Policy(scaling, 'overflow', scaling) for scaling in (
        'reactive_latency', 'cpu_hpa', 'queue_length', 'two_window', 'capacity_rule',
        'sqrt_staffing', 'clairvoyant')),
)}
