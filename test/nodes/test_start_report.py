"""What the dispatcher says at its start, of misspelt files, absent robots and namesakes."""

from __future__ import annotations

from laimr_ros.nodes.start_report import describe, Loneliness, Namesakes, unread_file

PATTERNS = ['/{robot}/image_raw/compressed', '/{robot}/image_raw']


def test_lanes_pools_and_topics_in_a_line_each():
    values = {
        'lane_names': ['fast', 'precise'], 'pool_names': ['edge', 'server'], 'topics': PATTERNS,
        'lanes.fast.model': 'lite', 'lanes.fast.slo': 0.3, 'lanes.fast.pools': ['edge'],
        'lanes.precise.model': 'x', 'lanes.precise.slo': 1.5,
        'lanes.precise.pools': ['server', 'edge'],
        'pools.edge.endpoints': [], 'pools.edge.min_replicas': 1, 'pools.edge.max_replicas': 4,
        'pools.server.endpoints': ['a:1'], 'pools.server.min_replicas': 1,
        'pools.server.max_replicas': 1,
    }
    assert list(describe(values, '/local_bridge')) == [
        'lane fast: model lite, SLO 0.3 s, pools [edge]',
        'lane precise: model x, SLO 1.5 s, pools [server, edge]',
        'pool edge: no endpoints yet, bridge /local_bridge, replicas 1 to 4',
        'pool server: endpoints [a:1], bridge /local_bridge, replicas 1 to 1',
        'looking for images on /{robot}/image_raw/compressed, /{robot}/image_raw',
    ]
    assert 'pool edge: no endpoints yet, no bridge, replicas 1 to 4' in list(describe(values, ''))


def test_a_file_without_our_section_is_told_of():
    given = ['dispatcher', '--ros-args', '--params-file', 'my.yaml']
    text = unread_file(given, {}, '/cell/dispatcher')
    assert 'my.yaml' in text and "'/cell/dispatcher'" in text and "'/**/dispatcher'" in text
    assert unread_file(given, {'policy': 'laimr'}, '/dispatcher') == ''
    assert unread_file(['dispatcher', '--ros-args'], {}, '/dispatcher') == ''


def test_no_robot_is_told_once_with_the_reason():
    lonely = Loneliness(0.0)
    topics = ['/image_raw/compressed']
    assert lonely.update(4.9, 0, PATTERNS, lambda: topics) is None
    text, bad = lonely.update(5.0, 0, PATTERNS, lambda: topics)
    assert bad and '/image_raw/compressed has no robot name: give the camera a namespace' in text
    assert PATTERNS[0] in text
    assert lonely.update(6.0, 0, PATTERNS, lambda: topics) is None
    # A camera that comes later and is misnamed, too.
    text, bad = lonely.update(60.0, 0, PATTERNS, lambda: [*topics, '/base_camera/image'])
    assert bad and "'robot1=/base_camera/image'" in text
    assert '/image_raw/' not in text.split('(')[0]


def test_no_robot_and_no_image_at_all():
    lonely = Loneliness(0.0)
    text, bad = lonely.update(5.0, 0, PATTERNS, lambda: [])
    assert not bad and 'is a camera running' in text
    assert lonely.update(50.0, 0, PATTERNS, lambda: []) is None


def test_with_a_robot_other_images_are_nobodys_business():
    lonely = Loneliness(0.0)
    assert lonely.update(50.0, 1, PATTERNS, lambda: ['/depth/image']) is None


def test_namesakes_are_told_of_and_so_is_their_end():
    names = Namesakes()
    one, two = [('dispatcher', '/cell'), ('dispatcher', '/')], [('dispatcher', '/cell')] * 2
    assert names.update(0.0, '/cell/dispatcher', one) is None
    assert names.update(1.0, '/cell/dispatcher', two) is None
    text, bad = names.update(4.0, '/cell/dispatcher', two)
    assert bad and text.startswith('2 nodes are named /cell/dispatcher')
    assert names.update(5.0, '/cell/dispatcher', two) is None
    assert names.update(6.0, '/cell/dispatcher', one) == (
        'this is the only node named /cell/dispatcher again', False)
    assert names.update(7.0, '/cell/dispatcher', one) is None
