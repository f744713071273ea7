"""Topic patterns against hand-written topic names."""

from __future__ import annotations

from laimr_ros.nodes.image_messages import COMPRESSED_TYPE, RAW_TYPE
from laimr_ros.nodes.topics import (
    find_sources,
    lane_of,
    parse_patterns,
    PatternError,
    Source,
    TopicPattern,
)
import pytest

DEFAULT = ['/{robot}/image_raw/compressed', '/{robot}/image_raw']


@pytest.mark.parametrize('pattern, topic, robot', [
    ('/{robot}/image_raw', '/robot19/image_raw', 'robot19'),
    ('/{robot}/image_raw', '/rack/robot19/image_raw', 'rack/robot19'),
    ('/{robot}/image_raw', '/image_raw', None),
    ('/{robot}/image_raw', '/robot19/image_raw/compressed', None),
    ('/{robot}/image_raw', '/robot19/image_rawX', None),
    ('/fleet/{robot}/cam/image', '/fleet/a_1/cam/image', 'a_1'),
    ('/fleet/{robot}/cam/image', '/other/a_1/cam/image', None),
    ('/cell_{robot}/image', '/cell_7/image', '7'),
    ('base=/base_camera/image', '/base_camera/image', 'base'),
    ('base=/base_camera/image', '/base_camera/image2', None),
])
def test_match(pattern, topic, robot):
    assert TopicPattern(pattern).robot(topic) == robot


def test_relative_patterns_are_in_the_namespace():
    assert TopicPattern('{robot}/image', '/edge').robot('/edge/r1/image') == 'r1'
    assert TopicPattern('{robot}/image', '/').robot('/r1/image') == 'r1'
    assert TopicPattern('top=cam/image', '/edge').robot('/edge/cam/image') == 'top'


@pytest.mark.parametrize('text, says', [
    ('/camera/image', 'which robot'),
    ('a=/{robot}/image', 'which robot'),
    ('/{robot}/{robot}', 'more than once'),
    ('/{robot}/image raw', 'not a topic name'),
    ('/{robot}//image', 'not a topic name'),
    ('9a=/image', 'name'),
    ('', 'which robot'),
])
def test_unusable_pattern_is_named(text, says):
    with pytest.raises(PatternError, match=says) as error:
        TopicPattern(text)
    assert repr(text) in str(error.value)


def test_no_pattern_is_an_error():
    with pytest.raises(PatternError, match='at least one'):
        parse_patterns([])


def test_compressed_is_preferred_and_wrong_types_are_named():
    sources, wrong = find_sources(parse_patterns(DEFAULT), [
        ('/a/image_raw', [RAW_TYPE]),
        ('/a/image_raw/compressed', [COMPRESSED_TYPE]),
        ('/b/image_raw', [RAW_TYPE]),
        ('/c/image_raw', ['std_msgs/msg/String']),
        ('/rosout', ['rcl_interfaces/msg/Log']),
    ])
    assert sources == {
        'a': [Source('a', '/a/image_raw/compressed', COMPRESSED_TYPE),
              Source('a', '/a/image_raw', RAW_TYPE)],
        'b': [Source('b', '/b/image_raw', RAW_TYPE)],
    }
    assert wrong == {'/c/image_raw': 'std_msgs/msg/String'}


@pytest.mark.parametrize('pattern, namespace, topic, detections', [
    ('/{robot}/image_raw', '/', '/r/image_raw', '/r/detections'),
    ('/{robot}/image_raw', '/edge', '/rack/r/image_raw', '/rack/r/detections'),
    ('/{robot}/camera/image_raw/compressed', '/', '/r/camera/image_raw/compressed',
     '/r/detections'),
    ('/{robot}/camera/image_raw/compressed', '/', '/a/b/camera/image_raw/compressed',
     '/a/b/detections'),
    ('/fleet/{robot}/image', '/', '/fleet/r/image', '/r/detections'),
    ('/cell_{robot}/image', '/', '/cell_7/image', '/cell_7/detections'),
    ('base=/base_camera/image', '/edge', '/base_camera/image', '/base/detections'),
    ('rack/top=/image', '/', '/image', '/rack/top/detections'),
    ('{robot}/image', '/edge', '/edge/r/image', '/edge/r/detections'),
    ('top=cam/image', '/edge', '/edge/cam/image', '/edge/top/detections'),
])
@pytest.mark.parametrize('kind', [COMPRESSED_TYPE, RAW_TYPE])
def test_detections_go_by_the_name_of_the_robot(pattern, namespace, topic, detections, kind):
    sources, _ = find_sources(parse_patterns([pattern], namespace), [(topic, [kind])])
    ((source,),) = sources.values()
    assert source.detections_topic == detections


def test_first_lane_with_a_pattern_takes_the_robot():
    patterns = {'fast': ['arm*'], 'precise': ['*9', 'arm1'], 'rest': []}
    assert lane_of('arm1', patterns, 'rest') == 'fast'
    assert lane_of('robot19', patterns, 'rest') == 'precise'
    assert lane_of('robot18', patterns, 'rest') == 'rest'
