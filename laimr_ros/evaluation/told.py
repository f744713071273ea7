"""A policy whose controller is told other service times than its scenario says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from laimr_ros.control.nouns import Configuration
from laimr_ros.latency.model import ServiceModel
from laimr_ros.simulation.policies import Policy
from laimr_ros.simulation.scenarios import Scenario

#: Service models by pool and detection model.
Models = Mapping[str, Mapping[str, ServiceModel]]


@dataclass(frozen=True)
class Told(Policy):
    """
    A policy that is told service times.

    :param models: of pools that the scenario has; of others it is told what the scenario says.
    """

    models: Models = field(default_factory=dict)

    def configuration(self, scenario: Scenario) -> Configuration:
        """Return what the controller is told."""
        configuration = super().configuration(scenario)
        return replace(configuration, pools={
            name: replace(pool, models={
                model: self.models.get(name, {}).get(model, law)
                for model, law in pool.models.items()})
            for name, pool in configuration.pools.items()})


def told(policy: Policy, models: Models) -> Told:
    """Return a policy that is told service times."""
    return Told(**{f.name: getattr(policy, f.name) for f in fields(Policy)}, models=models)


def models_of(policy: Policy, scenario: Scenario) -> Models:
    """Return what a policy's controller is told in a scenario."""
    return {name: dict(pool.models)
            for name, pool in policy.configuration(scenario).pools.items()}
