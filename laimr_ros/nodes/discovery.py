"""Robots come and go: who is there, judged by who publishes images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from laimr_ros.nodes.topics import find_sources, IMAGE_TYPES, Source, TopicPattern

# Topics of a wrong type that are remembered as told.
_MAX_REMEMBERED = 10_000


class Graph(Protocol):
    """What discovery needs of a ROS node."""

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]:
        """Return every topic and its types."""

    def count_publishers(self, topic_name: str) -> int:
        """Return the number of publishers on a topic."""


@dataclass
class Changes:
    """
    What is different since the last look.

    :param arrived: image topic of each robot that came.
    :param moved: new image topic of each robot that publishes on another one now.
    :param left: robots that have gone.
    """

    arrived: list[Source] = field(default_factory=list)
    moved: list[Source] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Discovery:
    """
    Keeps track of robots from the ROS graph.

    :param graph: a ROS node.
    :param patterns: image topics to look for; may be replaced while it runs.
    :param timeout: time without a publisher after which a robot has left, in seconds.
    :param warn: gets one message for each thing that is wrong with a topic.
    """

    def __init__(
        self, graph: Graph, patterns: Sequence[TopicPattern], timeout: float,
        warn: Callable[[str], None],
    ) -> None:
        self.patterns = patterns
        self.timeout = timeout
        self._graph = graph
        self._warn = warn
        self._warned: set[str] = set()
        self._sources: dict[str, Source] = {}
        self._seen: dict[str, float] = {}

    @property
    def sources(self) -> dict[str, Source]:
        """Return the image topic in use of each robot."""
        return self._sources

    def look(self, now: float) -> Changes:
        """
        Look who is there.

        :param now: a monotonic clock in seconds.
        """
        changes = Changes()
        found, wrong = find_sources(self.patterns, self._graph.get_topic_names_and_types())
        for topic, kind in wrong.items():
            self._warn_once(topic, f'topic {topic} matches the parameter topics but is a {kind}, '
                            'not a sensor_msgs/CompressedImage or Image: it is ignored; make the '
                            'pattern narrower, or publish images there')
        count = self._graph.count_publishers
        taken = {source.detections_topic: robot for robot, source in self._sources.items()}
        for robot, candidates in found.items():
            # One with nobody behind it is most often our own subscription.
            source = next((s for s in candidates if count(s.topic)), None)
            if source is None:
                continue
            owner = taken.setdefault(source.detections_topic, robot)
            if owner != robot:
                self._warn_once(
                    source.topic, f'robots {owner} and {robot} would both get their detections on '
                    f'{source.detections_topic}: {robot} is ignored; give it another name in the '
                    f"parameter topics, such as 'other_{robot.rpartition('/')[2]}={source.topic}'")
                continue
            self._check_others(source, candidates)
            self._seen[robot] = now
            known = self._sources.get(robot)
            if known == source:
                continue
            self._sources[robot] = source
            (changes.arrived if known is None else changes.moved).append(source)
        for robot in list(self._sources):
            gone = robot not in found
            # A robot that no pattern names any more has not gone for a moment but for good.
            if (gone and not self._still_matches(robot)) or (
                    now - self._seen[robot] >= self.timeout):
                del self._sources[robot], self._seen[robot]
                changes.left.append(robot)
        return changes

    def unmatched(self) -> list[str]:
        """Return the topics on which somebody publishes images but that no pattern matches."""
        return sorted(
            topic for topic, types in self._graph.get_topic_names_and_types()
            if any(kind in IMAGE_TYPES for kind in types)
            and not any(pattern.robot(topic) for pattern in self.patterns)
            and self._graph.count_publishers(topic))

    def _check_others(self, used: Source, candidates: Sequence[Source]) -> None:
        """Warn of images that would be ignored, unless they are the same ones compressed."""
        for other in candidates:
            if other != used and other.type == used.type and self._graph.count_publishers(
                    other.topic):
                self._warn_once(
                    other.topic, f'robot {used.robot} has images on {used.topic} and on '
                    f'{other.topic}, but detections on {used.detections_topic} only: the latter '
                    'are ignored; to have both, give each a name in the parameter topics, such as '
                    f"'{used.robot}_2={other.topic}'")

    def _still_matches(self, robot: str) -> bool:
        topic = self._sources[robot].topic
        return any(pattern.robot(topic) == robot for pattern in self.patterns)

    def _warn_once(self, topic: str, text: str) -> None:
        if topic not in self._warned and len(self._warned) < _MAX_REMEMBERED:
            self._warned.add(topic)
            self._warn(text)
