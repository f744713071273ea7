"""The loop around the controller, with replicas whose answers the test decides."""

from __future__ import annotations

import asyncio
from dataclasses import replace
import json
import struct
import threading
import time
from typing import ClassVar

from laimr_ros.control import hedging
from laimr_ros.control.actions import Scale
from laimr_ros.control.events import PoolObserved
from laimr_ros.control.nouns import Configuration, Lane, Pool, PowerLaw
from laimr_ros.nodes import dispatch_loop, replicas
from laimr_ros.nodes.clock_check import ClockCheck
from laimr_ros.nodes.dispatch_loop import DispatchLoop, Tuning
from laimr_ros.nodes.image_messages import COMPRESSED_TYPE, MessageError, read_compressed
from laimr_ros.nodes.records import Records
from laimr_ros.nodes.robots import Robot
from laimr_ros.nodes.topics import Source
from laimr_ros.serving.client import ReplicaHealth
from laimr_ros.serving.errors import ErrorKind, InferenceError
from laimr_ros.serving.reply import InferenceReply, Timings
import numpy as np
import pytest

ENDINGS = ('answered', 'superseded', 'expired', 'rejected', 'failed')


def message(size=100, stamp_ns=None):
    """Return a serialised CompressedImage."""
    stamp_ns = time.time_ns() if stamp_ns is None else stamp_ns
    return (b'\x00\x01\x00\x00' + struct.pack('<iII', stamp_ns // 10**9, stamp_ns % 10**9, 4)
            + b'cam\x00' + struct.pack('<I', 5) + b'jpeg\x00' + bytes(3)
            + struct.pack('<I', size) + bytes(size))


def eventually(predicate, what, deadline_s=10.0):
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.002)
    return value


class Client:
    """Stands in for a connection; the test decides what comes back."""

    made: ClassVar[dict] = {}

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.calls = []
        self.closed = False
        self.answer = None
        self.health = asyncio.Queue()
        self.health.put_nowait(ReplicaHealth(True))
        Client.made[endpoint] = self

    async def watch(self, models):
        while True:
            yield await self.health.get()

    served = ('m',)

    async def wait_ready(self, models, timeout_s):
        if not set(models) <= set(self.served):
            raise InferenceError(ErrorKind.UNAVAILABLE, 'not ready')

    async def served_models(self):
        return self.served

    async def class_names(self, model):
        return ('cup', 'robot')

    async def infer(self, model, image, timeout_s, frame_id=''):
        call = asyncio.get_running_loop().create_future()
        self.calls.append(call)
        if self.answer is not None:
            return self.answer()
        return await call

    async def close(self):
        self.closed = True


def reply():
    return InferenceReply(
        np.array([[0, 0, 10, 20]], np.float32), np.array([0.5], np.float32), ('cup',),
        Timings(0.0, 0.0, 0.0, 0.01, 0.0))


class Outlet:
    def __init__(self):
        self.scaled, self.named, self.gone, self.said = [], [], [], []
        self.levels = {}

    def scale(self, pool, count):
        self.scaled.append((pool, count))

    def class_names(self, lane, names):
        self.named.append((lane, names))

    def robot_gone(self, robot):
        self.gone.append(robot)

    def say(self, text, level='info'):
        self.said.append(text)
        self.levels[text] = level


class Stage:
    """A running loop with one lane, one pool and any number of stand-ins."""

    def __init__(self, tmp_path, **lane):
        self.outlet = Outlet()
        self.file = tmp_path / 'records.jsonl'
        self.records = Records(str(self.file), 10.0, self.outlet.said.append)
        lane = {'slo': 30.0, **lane}
        self.dispatch = DispatchLoop(
            Configuration(
                {'lane': Lane('lane', 'm', pools=('edge',), **lane)},
                {'edge': Pool('edge', {'m': PowerLaw(0.01)}, max_in_flight=4, max_replicas=4)}),
            Tuning(max_image_bytes=1000), self.outlet, self.records)
        self.dispatch.start()
        self.published = {}

    def connect(self, *endpoints):
        self.dispatch.call(self.dispatch.set_endpoints, {'edge': endpoints})
        ready = {f'{e}' for e in endpoints}
        eventually(lambda: {link['endpoint'] for link in self.dispatch.ask(self.dispatch.links)
                            if link['serving']} == ready, f'{endpoints} serve')

    def robot(self, name, read=read_compressed):
        published = self.published[name] = []
        return Robot(Source(name, f'/{name}/image_raw/compressed', COMPRESSED_TYPE), read,
                     published.append, ClockCheck(0.1, 5.0), 'lane', time.monotonic())

    def send(self, robot, data=None):
        self.dispatch.receive(
            robot, message() if data is None else data, time.monotonic(), time.time_ns())

    def counters(self):
        counters = self.dispatch.ask(lambda: self.dispatch.controller.counters.as_dict())
        assert counters['received'] == sum(counters[e] for e in ENDINGS) + counters['in_flight']
        return counters

    def wait(self, **expected):
        eventually(lambda: {k: v for k, v in self.counters().items() if k in expected} == expected,
                   str(expected))

    def calls(self, endpoint, count):
        return eventually(
            lambda: Client.made[endpoint].calls if len(Client.made[endpoint].calls) >= count
            else None, f'{count} calls')

    def finish(self, call, result=None, error=None):
        def do():
            if not call.done():
                call.set_exception(error) if error else call.set_result(result or reply())
        self.dispatch.call(do)

    def close(self, finish_s=0.1):
        self.dispatch.stop(finish_s)
        self.records.close()
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(replicas, 'ReplicaClient', Client)
    Client.made = {}
    stages = []

    def make(**lane):
        stages.append(Stage(tmp_path, **lane))
        return stages[-1]

    yield make
    for made in stages:
        made.close()
        assert not made.dispatch._thread.is_alive()
        assert not [s for s in made.outlet.said if 'Traceback' in s], made.outlet.said


def test_answer_is_published_to_the_robot_that_asked(stage):
    s = stage()
    s.connect('a:1')
    one, two = s.robot('one'), s.robot('two')
    s.send(one)
    s.send(two)
    first, second = s.calls('a:1', 2)
    s.finish(second)
    s.wait(answered=1)
    assert len(s.published['two']) == 1 and not s.published['one']
    s.finish(first)
    s.wait(answered=2)
    assert len(s.published['one']) == 1
    assert s.outlet.named == [('lane', ('cup', 'robot'))]
    assert one.open == two.open == 0


def test_failed_frames_go_to_another_replica(stage):
    s = stage()
    s.connect('a:1', 'b:1')
    robot = s.robot('r')
    s.send(robot)
    eventually(lambda: Client.made['a:1'].calls or Client.made['b:1'].calls, 'sent')
    first, other = ('a:1', 'b:1') if Client.made['a:1'].calls else ('b:1', 'a:1')
    s.finish(Client.made[first].calls[0],
             error=InferenceError(ErrorKind.UNAVAILABLE, 'connection reset'))
    s.finish(s.calls(other, 1)[0])
    s.wait(answered=1, failed=0)
    record, = s.close()
    assert (record['replica'], record['attempts']) == (other, 2)


def test_a_fault_of_ours_ends_the_frame_and_is_told(stage):
    s = stage()
    s.connect('a:1')

    def broken():
        raise ZeroDivisionError('a bug')

    Client.made['a:1'].answer = broken
    s.send(s.robot('r'))
    s.wait(received=1, failed=1, in_flight=0)
    assert any('a bug' in text for text in s.outlet.said)


def test_bad_images_of_every_kind_are_counted(stage):
    s = stage()
    s.connect('a:1')
    robot = s.robot('r')
    s.send(robot, message(0))
    s.send(robot, message(1001))
    s.send(robot, b'garbage')
    s.wait(received=3, rejected=3)
    s.send(robot)
    s.finish(s.calls('a:1', 1)[0],
             error=InferenceError(ErrorKind.BAD_IMAGE, 'not a JPEG'))
    s.wait(failed=1)
    reasons = [r['reason'] for r in s.close()]
    assert reasons[0] == 'empty image'
    assert 'max_image_bytes' in reasons[1]
    assert 'unreadable' in reasons[2]
    assert reasons[3] == 'bad image: not a JPEG'
    warnings = [text for text, level in s.outlet.levels.items() if level == 'warning']
    assert sum('bad image' in text for text in warnings) == 1, 'once a minute for each robot'
    assert 'robot r (/r/image_raw/compressed): bad image: empty image' in warnings[0]


def test_bad_images_are_counted_by_kind_and_each_robot_is_named(stage):
    s = stage()
    s.connect('a:1')
    robots = [s.robot('one'), s.robot('two')]
    for number in range(6):
        s.send(robots[number % 2])
        s.finish(s.calls('a:1', number + 1)[number], error=InferenceError(
            ErrorKind.BAD_IMAGE, f"a:1, model 'm': image is neither JPEG nor PNG (begins with "
            f'{number:02x} 00); send something else'))
        s.wait(failed=number + 1)
    cameras = s.dispatch.ask(lambda: {
        name: dict(c.counters.reasons) for name, c in s.dispatch.controller.cameras.items()})
    assert cameras == {name: {'failed: bad image: neither JPEG nor PNG': 3}
                       for name in ('one', 'two')}
    told = [text for text in s.outlet.said if 'bad image' in text]
    assert len(told) == 2
    for name, text in zip(('one', 'two'), told):
        assert f'robot {name} (/{name}/image_raw/compressed)' in text and 'a:1' not in text
        assert 'begins with' in text and 'send something else' in text


def test_a_replica_with_other_models_is_explained(stage, monkeypatch):
    monkeypatch.setattr(Client, 'served', ('n', 'm5'))
    s = stage()
    s.dispatch.call(s.dispatch.set_endpoints, {'edge': ['a:1']})
    text = eventually(lambda: next((t for t in s.outlet.said if 'a:1' in t), None), 'it is told')
    assert text == ("replica a:1 of pool edge: it serves [n, m5], not 'm' (lane lane asks for "
                    "it); did you mean 'm5'?")


def test_a_lost_replica_is_a_warning(stage):
    s = stage()
    s.connect('a:1')
    s.dispatch.call(Client.made['a:1'].health.put_nowait, ReplicaHealth(False, 'it has stopped'))
    text = eventually(lambda: next((t for t in s.outlet.said if 'has stopped' in t), None), 'told')
    assert 'a:1' in text and s.outlet.levels[text] == 'warning'


def test_frames_without_a_replica_are_told_once_and_their_end_too(stage, monkeypatch):
    monkeypatch.setattr(dispatch_loop, '_LOOK_S', 0.02)
    s = stage(slo=0.05)
    robot = s.robot('r')
    for number in range(3):
        s.send(robot)
        s.wait(expired=number + 1)
    eventually(lambda: any('go unanswered' in t for t in s.outlet.said), 'the warning')
    s.connect('a:1')
    eventually(lambda: any('serves again' in t for t in s.outlet.said), 'the end')
    begin, end = [t for t in s.outlet.said if 'unanswered' in t]
    assert 'pool edge' in begin and 'lane lane' in begin and 'pools.edge.endpoints' in begin
    assert s.outlet.levels[begin] == 'warning' and s.outlet.levels[end] == 'info'
    assert '3 frames' in end


def test_more_frames_than_can_be_taken_in_are_counted_too(stage):
    s = stage(supersede=False, max_queue=100_000)
    robot = s.robot('r')
    held, go = threading.Event(), threading.Event()

    def hold():
        held.set()
        go.wait(10.0)

    s.dispatch.call(hold)
    assert held.wait(10.0)
    for _ in range(1000):
        s.send(robot)
    assert len(s.dispatch._inbox) <= 256
    go.set()
    s.wait(received=1000)
    reasons = s.dispatch.ask(
        lambda: dict(s.dispatch.controller.cameras['r'].counters.reasons))
    assert reasons['rejected: dispatcher overloaded'] == 1000 - 256


def test_removed_endpoint_finishes_what_it_has(stage):
    s = stage()
    s.connect('a:1')
    robot = s.robot('r')
    s.send(robot)
    call, = s.calls('a:1', 1)
    s.dispatch.call(s.dispatch.set_endpoints, {'edge': []})
    s.dispatch.ask(lambda: None)
    assert not Client.made['a:1'].closed
    s.finish(call)
    s.wait(answered=1)
    eventually(lambda: Client.made['a:1'].closed, 'closed when idle')
    eventually(lambda: not s.dispatch.ask(s.dispatch.links), 'forgotten')
    assert s.dispatch.ask(lambda: dict(s.dispatch.controller.pools['edge'].replicas)) == {}
    # And back again, by a new connection.
    s.connect('a:1')
    assert not Client.made['a:1'].closed


def test_endpoint_that_comes_back_while_draining_is_not_closed(stage):
    s = stage()
    s.connect('a:1')
    robot = s.robot('r')
    s.send(robot)
    call, = s.calls('a:1', 1)
    client = Client.made['a:1']
    s.dispatch.call(s.dispatch.set_endpoints, {'edge': []})
    s.dispatch.call(s.dispatch.set_endpoints, {'edge': ['a:1']})
    s.dispatch.call(client.health.put_nowait, ReplicaHealth(True))
    s.finish(call)
    s.wait(answered=1)
    s.connect('a:1')
    assert Client.made['a:1'] is client and not client.closed


def test_a_replica_that_says_it_drains_gets_nothing_more(stage):
    s = stage()
    s.connect('a:1', 'b:1')
    a = Client.made['a:1']
    s.dispatch.call(a.health.put_nowait, ReplicaHealth(False, 'it says so itself'))
    eventually(lambda: s.dispatch.ask(lambda: s.dispatch.controller.pools['edge'].ready) == 1,
               'drained')
    robots = [s.robot(f'r{i}') for i in range(4)]
    for robot in robots:
        s.send(robot)
    s.calls('b:1', 4)
    assert a.calls == []


def test_a_robot_that_left_is_forgotten_with_its_last_frame(stage):
    s = stage()
    s.connect('a:1')
    robot = s.robot('r')
    s.send(robot)
    call, = s.calls('a:1', 1)
    s.dispatch.ask(lambda: s.dispatch.robot_left(robot, for_good=True))
    assert s.outlet.gone == []
    s.finish(call)
    eventually(lambda: s.outlet.gone == [robot], 'gone')
    assert s.dispatch.ask(lambda: dict(s.dispatch.controller.cameras)) == {}
    assert len(s.published['r']) == 1


def test_a_stop_ends_frames_that_are_sent_and_frames_that_wait(stage):
    s = stage(supersede=False)
    s.connect('a:1')
    robot = s.robot('r')
    for _ in range(10):
        s.send(robot)
    s.calls('a:1', 4)
    s.wait(received=10)
    begin = time.monotonic()
    records = s.close(0.2)
    assert time.monotonic() - begin < 2.0
    assert len(records) == 10
    assert {r['outcome'] for r in records} <= {'failed', 'expired'}
    counters = s.dispatch.controller.counters.as_dict()
    assert counters['in_flight'] == 0 and counters['received'] == 10


def test_a_stop_without_any_replica_ends_all_the_same(stage):
    s = stage(supersede=False)
    robot = s.robot('r')
    for _ in range(3):
        s.send(robot)
    s.wait(received=3)
    assert len(s.close(0.1)) == 3


def test_a_frame_is_answered_in_time_by_a_stop_that_waits(stage):
    s = stage()
    s.connect('a:1')
    s.send(s.robot('r'))
    call, = s.calls('a:1', 1)
    threading.Timer(0.1, s.finish, (call,)).start()
    record, = s.close(5.0)
    assert record['outcome'] == 'answered' and len(s.published['r']) == 1


def test_scaling_is_passed_on(stage):
    s = stage()
    s.dispatch.call(s.dispatch.pool_observed, PoolObserved('edge', 2, 0))
    eventually(lambda: s.outlet.scaled == [('edge', 2)], 'the first wish')
    s.dispatch.call(s.dispatch._scale, Scale('edge', 3))
    s.dispatch.call(s.dispatch._scale, Scale('edge', 3))
    s.dispatch.ask(lambda: None)
    first, then = [text for text in s.outlet.said if 'desired' in text]
    assert first.startswith('pool edge: desired replicas at first 2 (')
    assert then.startswith('pool edge: desired replicas 2 -> 3 (0.0 frames/s, predicted P99 ')
    assert 'SLO 30 s' in then


def test_unreadable_message_is_rejected(stage):
    def read(_):
        raise MessageError('cut short')

    s = stage()
    s.send(s.robot('r', read))
    s.wait(received=1, rejected=1)


@pytest.fixture
def twice(stage, monkeypatch):
    """Return a stage, and the calls of one frame that is out on both of its replicas."""
    monkeypatch.setattr(hedging, '_LEAST_SAMPLES', 1)
    stage = stage()
    own = stage.dispatch.controller.configuration
    stage.dispatch.call(stage.dispatch.configure, replace(
        own, limits=replace(own.limits, hedge_share=0.9)), Tuning(max_image_bytes=1000))
    stage.connect('h:1', 'h:2')
    robot = stage.robot('r')
    # Copies are earned, and completions known, first.
    for k in range(2):
        stage.send(robot)
        stage.finish(eventually(lambda: next(
            (c for e in Client.made for c in Client.made[e].calls if not c.done()), None), 'sent'))
        stage.wait(answered=k + 1)
    before = {e: len(Client.made[e].calls) for e in Client.made}
    stage.send(robot)
    return stage, *(stage.calls(e, before[e] + 1)[-1] for e in ('h:1', 'h:2'))


@pytest.mark.parametrize('winner', [0, 1])
def test_of_two_copies_the_first_answer_is_published_and_the_other_cancelled(twice, winner):
    stage, *calls = twice
    stage.finish(calls[winner])
    stage.wait(answered=3)
    eventually(calls[1 - winner].cancelled, 'the other copy is cancelled')
    assert len(stage.published['r']) == 3
    assert all(link['in_flight'] == 0 for link in stage.dispatch.ask(stage.dispatch.links))
    assert stage.close()[-1]['attempts'] == 2


@pytest.mark.parametrize('failing', [0, 1])
def test_a_copy_that_fails_leaves_the_other_to_answer(twice, failing):
    stage, *calls = twice
    stage.finish(calls[failing], error=InferenceError(ErrorKind.INTERNAL, 'broken'))
    stage.finish(calls[1 - failing])
    stage.wait(answered=3)
    assert stage.counters()['failed'] == 0


def test_a_frame_out_twice_ends_when_the_dispatcher_stops(twice):
    stage, *calls = twice
    stage.close()
    assert all(call.cancelled() for call in calls)
    counters = stage.dispatch.controller.counters
    assert counters.in_flight == 0
