"""How one pool lives in a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
import re

from laimr_ros.cluster.kubernetes.selector import parse

_NAME = r'[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?'
# What can be scaled, by the word people write; its name in an API path.
_KINDS = {'deployment': 'deployments', 'statefulset': 'statefulsets'}


class Drive(Enum):
    """How the number of replicas gets into the cluster."""

    SCALE = 'scale'
    EXTERNAL_METRIC = 'external_metric'
    KEDA = 'keda'


@dataclass(frozen=True)
class Workload:
    """
    What the replicas of a pool belong to.

    :param kind: ``deployment`` or ``statefulset``.
    :param namespace: where it is.
    :param name: of the object.
    """

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Return the path of its list in the API."""
        return f'/apis/apps/v1/namespaces/{self.namespace}/{_KINDS[self.kind]}'

    def __str__(self) -> str:
        """Return it as people write it."""
        return f'{self.kind}/{self.name}'


def parse_workload(text: str, namespace: str) -> Workload:
    """
    Return the workload that a text names.

    :param text: ``deployment/name``, ``statefulset/name``, or a deployment's bare name.
    :raises ValueError: saying what is wrong with it.
    """
    if re.search(r'[,\s]', text.strip()):
        raise ValueError(
            f'{text!r} names more than one workload; a pool is one, so make a pool of each')
    kind, slash, name = text.strip().partition('/')
    if not slash:
        kind, name = 'deployment', kind
    if kind not in _KINDS or not re.fullmatch(_NAME, name):
        raise ValueError(
            f'{text!r} is no workload; write deployment/NAME or statefulset/NAME')
    return Workload(kind, namespace, name)


@dataclass(frozen=True)
class KubernetesPool:
    """
    How one pool lives in a cluster.

    :param workload: ``deployment/name`` or ``statefulset/name``.
    :param min_replicas: never ask for fewer.
    :param max_replicas: never ask for more.
    :param drive: how the number gets into the cluster.
    :param namespace: of the workload; empty for the one that the credentials are at home in.
    :param selector: labels of the pods; empty for the workload's own selector.
    :param port: where replicas serve; 0 for the first port that the pods declare.
    :param min_interval_s: shortest time between two changes of the number, in seconds.
    """

    workload: str
    min_replicas: int = 0
    max_replicas: int = 1
    drive: Drive = Drive.SCALE
    namespace: str = ''
    selector: str = ''
    port: int = 0
    min_interval_s: float = 0.5

    def __post_init__(self) -> None:
        """Check. :raises ValueError: naming the field, its value and the fix."""
        parse_workload(self.workload, self.namespace)
        parse(self.selector)
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f'min_replicas {self.min_replicas}, max_replicas {self.max_replicas}: '
                'need 0 <= min_replicas <= max_replicas'
            )
