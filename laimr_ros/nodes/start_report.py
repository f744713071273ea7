"""What a dispatcher says of itself at its start, and while nothing comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import itertools
from typing import Any

# Time given to robots to be found before their absence is told of.
_PATIENCE_S = 5.0
# A node that just ended may be seen for a moment.
_NAMESAKE_S = 3.0
# Unmatched topics that are named in one message, and remembered as named.
_MOST_NAMED = 10
_MAX_REMEMBERED = 1000


def describe(values: Mapping[str, Any], bridge: str) -> Iterator[str]:
    """
    Yield a line for each lane, each pool, and the topics that are looked for.

    :param values: the dispatcher's parameters.
    :param bridge: full name of the bridge; empty for none.
    """
    for lane in values['lane_names']:
        prefix = f'lanes.{lane}.'
        pools = ', '.join(values[prefix + 'pools'])
        yield (f'lane {lane}: model {values[prefix + "model"]}, SLO {values[prefix + "slo"]:g} s, '
               f'pools [{pools}]')
    for pool in values['pool_names']:
        prefix = f'pools.{pool}.'
        endpoints = values[prefix + 'endpoints']
        where = f'endpoints [{", ".join(endpoints)}]' if endpoints else 'no endpoints yet'
        holder = f'bridge {bridge}' if bridge else 'no bridge'
        yield (f'pool {pool}: {where}, {holder}, replicas {values[prefix + "min_replicas"]} to '
               f'{values[prefix + "max_replicas"]}')
    yield f'looking for images on {", ".join(values["topics"])}'


def unread_file(arguments: Sequence[str], overrides: Mapping[str, Any], node: str) -> str:
    """
    Return a warning if a parameter file was given but has nothing for this node; else nothing.

    :param arguments: the command line.
    :param overrides: values that reached the node from outside.
    :param node: full name of the node.
    """
    files = [
        value for option, value in itertools.pairwise(arguments) if option == '--params-file']
    if not files or overrides:
        return ''
    return (f'no section of {", ".join(files)} is for the node {node}, so all parameters have '
            f'their defaults: begin it with {node!r} or with \'/**/{node.rpartition("/")[2]}\'')


class Loneliness:
    """
    Says once, and once for each new topic, that no robot is there and why.

    :param started: a monotonic clock in seconds.
    """

    def __init__(self, started: float) -> None:
        """Start to wait."""
        self._started = started
        self._told = False
        self._named: set[str] = set()

    def update(
        self, now: float, robots: int, patterns: Sequence[str],
        unmatched: Callable[[], Sequence[str]],
    ) -> tuple[str, bool] | None:
        """
        Return what to log, and whether it is a warning; None for nothing.

        :param robots: how many there are.
        :param patterns: as in the parameter ``topics``.
        :param unmatched: returns image topics that no pattern matches.
        """
        if robots:
            self._started = now
            return None
        if now - self._started < _PATIENCE_S:
            return None
        topics = [topic for topic in unmatched() if topic not in self._named]
        if topics and len(self._named) < _MAX_REMEMBERED:
            self._told = True
            self._named.update(topics)
            return (f'no robot: images are on {_listed(topics)}, which nothing in the parameter '
                    f'topics ({", ".join(patterns)}) matches; {_advice(topics[0])}', True)
        if not self._told:
            self._told = True
            return (f'no robot yet: nobody publishes images on {", ".join(patterns)}, nor on any '
                    'other topic; is a camera running, with the same ROS_DOMAIN_ID?', False)
        return None


def _advice(topic: str) -> str:
    segments = topic.strip('/').split('/')
    if segments[0] == 'image_raw':
        return (f'{topic} has no robot name: give the camera a namespace, or name it with '
                f"'robot1={topic}'")
    return f"name it there, such as 'robot1={topic}'"


def _listed(topics: Sequence[str]) -> str:
    more = len(topics) - _MOST_NAMED
    return ', '.join(topics[:_MOST_NAMED]) + (f' and {more} more' if more > 0 else '')


class Namesakes:
    """Says when another node of the same full name is there, and when it has gone."""

    def __init__(self) -> None:
        """Start alone."""
        self._since: float | None = None
        self._told = False

    def update(
        self, now: float, node: str, nodes: Sequence[tuple[str, str]],
    ) -> tuple[str, bool] | None:
        """
        Return what to log, and whether it is a warning; None for nothing.

        :param node: our full name.
        :param nodes: name and namespace of each node in the graph, ours included.
        """
        count = sum(f'{space.rstrip("/")}/{name}' == node for name, space in nodes)
        if count <= 1:
            told, self._since, self._told = self._told, None, False
            return (f'this is the only node named {node} again', False) if told else None
        if self._since is None:
            self._since = now
        if self._told or now - self._since < _NAMESAKE_S:
            return None
        self._told = True
        return (f'{count} nodes are named {node}: each robot is answered by all of them, and '
                'replicas are asked for by all; stop all but one, or give each a namespace and '
                'robots of its own (one that was killed shows up to half a minute longer)', True)
