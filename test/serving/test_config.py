"""Settings of a worker: files of ROS and plain ones, and every mistake."""

from __future__ import annotations

from pathlib import Path

from laimr_ros.detectors import factory
from laimr_ros.detectors.base import DetectorSpec
from laimr_ros.serving import config
from laimr_ros.serving.config import ConfigError, from_mapping, node_settings, ServerOptions
import pytest
import yaml

MODEL = {'models': {'m': {'kind': 'emulated'}}}


def test_everything_set():
    read = from_mapping({
        'model_names': ['a', 'b'],
        'models': {
            'a': {'kind': 'yolo', 'weights': 'yolov5n.yaml', 'input_px': 320, 'device': 'cpu',
                  'half': True, 'threads': 2, 'score_threshold': 0.5, 'max_detections': 7},
            'b': {'kind': 'emulated', 'options': {'mean_s': 0.1, 'law': 'constant'}},
            'unused': {'kind': 'emulated'}},
        'listen': ['unix:/run/x.sock', '0.0.0.0:0'], 'max_queue': 2, 'max_pixels': 1000,
        'drain_grace_s': 3, 'emulated_rtt_s': 0.06, 'emulated_rtt_cv': 0.2,
        'emulated_rtt_seed': 5})
    assert read.models == {
        'a': DetectorSpec('yolo', 'yolov5n.yaml', 320, 'cpu', True, 2, 0.5, 7),
        'b': DetectorSpec('emulated', options={'mean_s': 0.1, 'law': 'constant'})}
    assert read.listen == ('unix:/run/x.sock', '0.0.0.0:0') and read.drain_grace_s == 3.0
    assert read.server == ServerOptions(2, 1000, 0.06, 0.2, 5)


def test_defaults_are_those_of_the_table_and_of_the_detectors():
    read = from_mapping(MODEL)
    assert read.models == {'m': DetectorSpec('emulated')}
    assert read.server == ServerOptions()
    for setting in config.MODEL_SETTINGS:
        if setting.name != 'kind':
            assert getattr(DetectorSpec(''), setting.name) == setting.default, setting.name
    for setting in config.WORKER_SETTINGS:
        if hasattr(read.server, setting.name) and setting.name != 'emulated_rtt_seed':
            assert getattr(read.server, setting.name) == setting.default, setting.name
        assert setting.description
    assert config.KINDS == factory.KINDS


def test_dots_are_as_good_as_nesting():
    assert from_mapping({
        'models.m.kind': 'emulated', 'models.m.options.mean_s': 0.1, 'model_names': ['m'],
    }) == from_mapping({'models': {'m': {'kind': 'emulated', 'options': {'mean_s': 0.1}}}})


def test_the_empty_list_of_ros():
    assert list(from_mapping({**MODEL, 'model_names': ['']}).models) == ['m']


@pytest.mark.parametrize('change, hint', [
    ({'max_quue': 1}, "'max_quue'.*did you mean 'max_queue'"),
    ({'models': {'m': {'kind': 'emulated', 'wieghts': 'x'}}}, "did you mean 'models.m.weights'"),
    ({'zzz': 1}, "'zzz'; known are"),
    ({'models': {'m': {'kind': 'yolov5'}}}, "'yolov5'.*yolo, .*did you mean 'yolo'"),
    ({'models': {'m': {'weights': 'x'}}}, r'models\.m\.kind is missing'),
    ({'models': {}}, 'no model'),
    ({'model_names': ['m', 'n']}, "'n'.*described are: m"),
    ({'model_names': ['m', 'm']}, 'once'),
    ({'model_names': 3}, 'list of texts'),
    ({'max_queue': -1}, '-1.*0 to'),
    ({'max_queue': 2.5}, '2.5.*whole'),
    ({'max_queue': True}, 'True.*whole'),
    ({'max_pixels': '4 MP'}, "'4 MP'.*whole number"),
    ({'drain_grace_s': float('nan')}, 'nan'),
    ({'emulated_rtt_s': -0.1}, '-0.1'),
    ({'models': {'m': {'kind': 'emulated', 'score_threshold': 25}}}, '25.*0 to 1'),
    ({'models': {'m': {'kind': 'emulated', 'half': 'yes'}}}, 'true or false'),
    ({'models': {'m': {'kind': 'emulated', 'device': 0}}}, 'text'),
    ({'listen': ['http://x:1']}, 'listen.*gRPC'),
    ({'listen': []}, 'listen is empty'),
])
def test_mistakes_name_the_setting_the_value_and_the_fix(change, hint):
    with pytest.raises(ConfigError, match=hint) as caught:
        from_mapping({**MODEL, **change})
    assert '\n' not in str(caught.value)


def parse(text, **kwargs):
    return node_settings(yaml.safe_load(text), **kwargs)


def test_sections_of_ros():
    assert parse('worker: {ros__parameters: {max_queue: 2}}') == {'max_queue': 2}
    assert parse('/edge/worker: {ros__parameters: {max_queue: 2}}') == {'max_queue': 2}
    assert parse('edge: {worker: {ros__parameters: {max_queue: 2}}}') == {'max_queue': 2}
    assert parse('/**/worker: {ros__parameters: {max_queue: 2}}') == {'max_queue': 2}
    assert parse('/**: {ros__parameters: {max_queue: 2}}') == {'max_queue': 2}
    assert parse('cloud_worker: {ros__parameters: {max_queue: 2}}', node_name='cloud_worker') == {
        'max_queue': 2}
    assert parse('max_queue: 2') == {'max_queue': 2}
    assert parse('') == {}


def test_the_nodes_own_section_wins_and_others_are_passed_over():
    assert parse("""
        worker: {ros__parameters: {max_queue: 3, models: {m: {threads: 2}}}}
        /**: {ros__parameters: {max_queue: 2, rate: 5.0, models: {m: {threads: 1, kind: yolo}}}}
        camera: {ros__parameters: {rate: 3.0}}
    """) == {'max_queue': 3, 'models.m.threads': 2, 'models.m.kind': 'yolo'}


def test_a_mistake_in_the_only_section_is_one():
    with pytest.raises(ConfigError, match='max_queue'):
        from_mapping(parse('/**: {ros__parameters: {max_quue: 2}}'))


def test_what_every_ros_node_has_is_no_mistake():
    from_mapping({**MODEL, 'use_sim_time': True, 'qos_overrides': {'/x': {'depth': 1}}})


def test_no_section_for_this_node():
    with pytest.raises(ConfigError, match="no section 'worker'.*camera"):
        parse('camera: {ros__parameters: {rate: 3.0}}')
    with pytest.raises(ConfigError, match='list'):
        parse('[1, 2]')


@pytest.mark.parametrize(
    'path', sorted((Path(__file__).parents[2] / 'config').glob('*.yaml')), ids=lambda p: p.name)
def test_our_own_files(path):
    document = yaml.safe_load(path.read_text(encoding='utf-8'))
    if 'worker' not in str(list(document)):
        pytest.skip(f'{path.name} has no worker; nothing to do')
    assert from_mapping(node_settings(document)).models
