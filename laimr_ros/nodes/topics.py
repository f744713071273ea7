"""Which image topics belong to which robot: patterns of topic names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
import re

from laimr_ros.nodes.image_messages import COMPRESSED_TYPE, RAW_TYPE

PLACEHOLDER = '{robot}'
IMAGE_TYPES = (COMPRESSED_TYPE, RAW_TYPE)

_SEGMENT = r'[A-Za-z_][A-Za-z0-9_]*'


class PatternError(ValueError):
    """A pattern cannot be used; the message names it and the fix."""


class TopicPattern:
    """
    One pattern of image topics.

    ``{robot}`` stands for one or more segments of the name and names the robot. Without it,
    ``name=/topic`` names the robot of a single topic.

    Detections go to ``<prefix><robot>/detections``: ``/<robot>/detections``, within the namespace
    if the pattern is relative to it. Of a pattern such as ``/cell_{robot}/image``, whose robots
    may be called ``7``, the beginning of the segment belongs to it.

    :param text: the pattern.
    :param namespace: what patterns without a leading slash are relative to.
    :raises PatternError: if the pattern cannot be a topic.
    """

    def __init__(self, text: str, namespace: str = '/') -> None:
        self.text = text
        name, equals, topic = text.rpartition('=')
        home = '/'
        if not topic.startswith('/'):
            home = f'{namespace.rstrip("/")}/'
            topic = home + topic
        count = topic.count(PLACEHOLDER)
        if count > 1:
            raise PatternError(f'topics: {text!r} has {PLACEHOLDER} more than once: keep one')
        if bool(count) == bool(equals):
            raise PatternError(
                f'topics: {text!r} does not say which robot it is: write {PLACEHOLDER} in the '
                "topic, or 'name=/topic' for a single one")
        if not re.fullmatch(rf'(/{_SEGMENT})+', topic.replace(PLACEHOLDER, 'robot')):
            raise PatternError(f'topics: {text!r} is not a topic name: use letters, digits, _ '
                               'and /, and no digit at the beginning of a segment')
        if equals and not re.fullmatch(rf'{_SEGMENT}(/{_SEGMENT})*', name):
            raise PatternError(
                f'topics: {text!r} names the robot {name!r}: use letters, digits, _ and /')
        self._name = name
        self._topic = topic
        before, _, after = topic.partition(PLACEHOLDER)
        #: What stands before the name of the robot in the topic of its detections.
        self.prefix = home if equals else home + before.rpartition('/')[2]
        # Within a segment (`cell_{robot}`) the robot may begin with a digit.
        first = _SEGMENT if before.endswith('/') else '[A-Za-z0-9_]+'
        self._regex = re.compile(
            f'{re.escape(before)}(?P<robot>{first}(?:/{_SEGMENT})*){re.escape(after)}')

    def robot(self, topic: str) -> str | None:
        """Return the name of the robot that sends on a topic; None if it does not match."""
        if self._name:
            return self._name if topic == self._topic else None
        match = self._regex.fullmatch(topic)
        return match['robot'] if match else None


@dataclass(frozen=True)
class Source:
    """
    An image topic of a robot.

    :param robot: name of the robot.
    :param topic: full name of its image topic.
    :param type: ``sensor_msgs/msg/CompressedImage`` or ``sensor_msgs/msg/Image``.
    :param prefix: what stands before the robot in the topic of its detections.
    """

    robot: str
    topic: str
    type: str
    prefix: str = '/'

    @property
    def detections_topic(self) -> str:
        """Return where the detections go: by the robot's name, wherever its images are."""
        return f'{self.prefix}{self.robot}/detections'


def parse_patterns(texts: Sequence[str], namespace: str = '/') -> tuple[TopicPattern, ...]:
    """
    Return the patterns of the parameter ``topics``.

    :raises PatternError: if one cannot be used, or there is none.
    """
    if not texts:
        raise PatternError("topics is empty: give at least one pattern, such as "
                           "'/{robot}/image_raw/compressed'")
    return tuple(TopicPattern(text, namespace) for text in texts)


def find_sources(
    patterns: Sequence[TopicPattern], topics: Iterable[tuple[str, Sequence[str]]],
) -> tuple[dict[str, list[Source]], dict[str, str]]:
    """
    Sort a graph's topics by robot.

    :param topics: name and types of each topic.
    :return: the image topics of each robot, the best first (compressed before raw, then in the
        order of the patterns); and the matching topics whose type is not an image, with it.
    """
    found: dict[str, list[tuple[int, int, Source]]] = {}
    wrong: dict[str, str] = {}
    for topic, types in topics:
        for rank, pattern in enumerate(patterns):
            robot = pattern.robot(topic)
            if robot is None:
                continue
            image_type = next((t for t in IMAGE_TYPES if t in types), '')
            if image_type:
                found.setdefault(robot, []).append((
                    IMAGE_TYPES.index(image_type), rank,
                    Source(robot, topic, image_type, pattern.prefix)))
            else:
                wrong[topic] = types[0] if types else 'unknown'
            break
    return {
        robot: [source for *_, source in sorted(entries, key=lambda e: e[:2])]
        for robot, entries in found.items()}, wrong


def lane_of(robot: str, patterns: Mapping[str, Sequence[str]], default: str) -> str:
    """
    Return the lane of a robot: the first that has a pattern for it.

    :param patterns: of each lane, shell patterns of robot names.
    :param default: lane of the robots that no pattern matches.
    """
    from fnmatch import fnmatchcase
    for lane, texts in patterns.items():
        if any(fnmatchcase(robot, text) for text in texts):
            return lane
    return default
