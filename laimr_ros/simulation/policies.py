"""Who routes and who scales, by name: the policies that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: Who says where a frame goes. ``overflow``: the first pool of the lane with a free replica, else
#: the frame waits in one queue; ``round_robin``: pushed to the first pool's replicas in turn.
ROUTINGS = ('laimr', 'laimr_paper', 'overflow', 'round_robin')
#: Who says how many replicas there are to be. ``fixed`` leaves the initial ones.
SCALINGS = (
    'laimr', 'laimr_paper', 'reactive_latency', 'cpu_hpa', 'queue_length', 'two_window',
    'capacity_rule', 'sqrt_staffing', 'clairvoyant', 'fixed')


@dataclass(frozen=True)
class Policy:
    """
    One policy.

    :param routing: one of :data:`ROUTINGS`.
    :param scaling: one of :data:`SCALINGS`.
    :param settings: of the scaling rule, those that differ from its defaults.
    :param limits: of the controller, those that differ from
        :class:`laimr_ros.control.nouns.Limits`' defaults.
    """

    name: str
    routing: str
    scaling: str
    settings: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is unknown."""
        if self.routing not in ROUTINGS:
            raise ValueError(f'routing {self.routing!r} is unknown; use one of {list(ROUTINGS)}')
        if self.scaling not in SCALINGS:
            raise ValueError(f'scaling {self.scaling!r} is unknown; use one of {list(SCALINGS)}')

    def tuned(self, **values: float) -> Policy:
        """Return the policy with other settings of its rule, or, if it is not one, limits."""
        if self.scaling in ('laimr', 'laimr_paper'):
            return replace(self, limits={**self.limits, **values})
        return replace(self, settings={**self.settings, **values})


def crossed(routing: str, scaling: str, **settings: float) -> Policy:
    """Return a policy of any routing and any scaling."""
    return Policy(f'{routing}+{scaling}', routing, scaling).tuned(**settings)


#: The policies that are compared, by name.
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (
    Policy('laimr', 'laimr', 'laimr'),
    # Published with a metric that the autoscaler reads every 5 s.
    Policy('laimr_paper', 'laimr_paper', 'laimr_paper', limits={'scale_interval': 5.0}),
    *(Policy(name, 'overflow', name) for name in SCALINGS
      if name not in ('laimr', 'laimr_paper', 'fixed')),
)}
