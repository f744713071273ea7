"""Discovery against a graph written by hand."""

from __future__ import annotations

from laimr_ros.nodes.discovery import Discovery
from laimr_ros.nodes.image_messages import COMPRESSED_TYPE, RAW_TYPE
from laimr_ros.nodes.topics import parse_patterns
import pytest

PATTERNS = parse_patterns(['/{robot}/image_raw/compressed', '/{robot}/image_raw'])


class Graph:
    """A graph: topic -> (type, number of publishers)."""

    def __init__(self, **topics):
        self.topics = topics

    def get_topic_names_and_types(self):
        return [(topic, [kind]) for topic, (kind, _) in self.topics.items()]

    def count_publishers(self, topic):
        return self.topics[topic][1] if topic in self.topics else 0


@pytest.fixture
def graph():
    return Graph()


@pytest.fixture
def said():
    return []


@pytest.fixture
def discovery(graph, said):
    return Discovery(graph, PATTERNS, 3.0, said.append)


def names(sources):
    return [(source.robot, source.topic) for source in sources]


def test_robot_comes_and_goes(graph, discovery):
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    assert names(discovery.look(0.0).arrived) == [('a', '/a/image_raw')]
    changes = discovery.look(1.0)
    assert not (changes.arrived or changes.moved or changes.left)
    # Our own subscription keeps the topic in the graph.
    graph.topics['/a/image_raw'] = RAW_TYPE, 0
    assert discovery.look(2.0).left == []
    assert discovery.look(3.9).left == []
    assert discovery.look(4.0).left == ['a']
    assert discovery.sources == {}
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    assert names(discovery.look(5.0).arrived) == [('a', '/a/image_raw')]


def test_short_absence_is_no_departure(graph, discovery):
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    discovery.look(0.0)
    del graph.topics['/a/image_raw']
    assert discovery.look(2.9).left == []
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    changes = discovery.look(3.5)
    assert not (changes.arrived or changes.moved or changes.left)


def test_compressed_is_used_while_somebody_publishes_it(graph, discovery):
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    graph.topics['/a/image_raw/compressed'] = COMPRESSED_TYPE, 0
    assert names(discovery.look(0.0).arrived) == [('a', '/a/image_raw')]
    graph.topics['/a/image_raw/compressed'] = COMPRESSED_TYPE, 1
    assert names(discovery.look(1.0).moved) == [('a', '/a/image_raw/compressed')]
    graph.topics['/a/image_raw/compressed'] = COMPRESSED_TYPE, 0
    assert names(discovery.look(2.0).moved) == [('a', '/a/image_raw')]


def test_wrong_type_is_said_once(graph, discovery, said):
    graph.topics['/a/image_raw'] = 'std_msgs/msg/String', 1
    for now in (0.0, 1.0, 2.0):
        assert discovery.look(now).arrived == []
    assert len(said) == 1
    assert '/a/image_raw' in said[0] and 'std_msgs/msg/String' in said[0]


def test_two_cameras_in_one_namespace_are_two_robots(graph, said):
    discovery = Discovery(
        graph, parse_patterns(['left=/rig/left', 'right=/rig/right']), 3.0, said.append)
    graph.topics['/rig/left'] = RAW_TYPE, 1
    graph.topics['/rig/right'] = RAW_TYPE, 1
    assert [(s.topic, s.detections_topic) for s in discovery.look(0.0).arrived] == [
        ('/rig/left', '/left/detections'), ('/rig/right', '/right/detections')]
    assert said == []


def test_two_robots_cannot_share_a_detections_topic(graph, said):
    patterns = parse_patterns(['/cell_{robot}/image', '/{robot}/camera'])
    discovery = Discovery(graph, patterns, 3.0, said.append)
    graph.topics['/cell_7/image'] = RAW_TYPE, 1
    graph.topics['/cell_7/camera'] = RAW_TYPE, 1
    assert names(discovery.look(0.0).arrived) == [('7', '/cell_7/image')]
    assert discovery.look(1.0).arrived == []
    assert len(said) == 1 and '/cell_7/detections' in said[0] and 'cell_7 is ignored' in said[0]


def test_a_second_camera_under_the_same_name_is_told_once(graph, said):
    discovery = Discovery(
        graph, parse_patterns(['/{robot}/left', '/{robot}/right']), 3.0, said.append)
    graph.topics['/a/left'] = RAW_TYPE, 1
    graph.topics['/a/right'] = RAW_TYPE, 1
    for now in (0.0, 1.0):
        discovery.look(now)
    assert names(discovery.sources.values()) == [('a', '/a/left')]
    assert len(said) == 1 and '/a/right' in said[0] and "'a_2=/a/right'" in said[0]


def test_images_that_no_pattern_matches_are_found(graph, discovery):
    graph.topics['/image_raw/compressed'] = COMPRESSED_TYPE, 1
    graph.topics['/depth/image'] = RAW_TYPE, 1
    graph.topics['/nobody/image'] = RAW_TYPE, 0
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    graph.topics['/text'] = 'std_msgs/msg/String', 1
    assert discovery.unmatched() == ['/depth/image', '/image_raw/compressed']


def test_changed_patterns_send_robots_away_at_once(graph, discovery):
    graph.topics['/a/image_raw'] = RAW_TYPE, 1
    graph.topics['/b/cam'] = RAW_TYPE, 1
    discovery.look(0.0)
    discovery.patterns = parse_patterns(['/{robot}/cam'])
    changes = discovery.look(0.1)
    assert names(changes.arrived) == [('b', '/b/cam')]
    assert changes.left == ['a']
