"""Test laimr calibrate without a worker: plan, sweep, evaluation, files, options."""

from __future__ import annotations

import asyncio
from dataclasses import replace
import json
import math
from pathlib import Path
import time

from laimr_ros.cli import calibrate
from laimr_ros.cli.calibration_report import (
    dispatcher_settings,
    ParametersError,
    read_parameters,
    write_records,
    write_result,
)
from laimr_ros.cli.calibration_result import evaluate, judge
from laimr_ros.cli.calibration_sweep import FrameRecord, plan, service_alone, sweep, SweepError
from laimr_ros.cli.main import main
from laimr_ros.latency.model import Network, PowerLaw
from laimr_ros.serving.client import ImagePayload
from laimr_ros.serving.errors import ErrorKind, InferenceError
from laimr_ros.serving.reply import InferenceReply, Timings
import numpy as np
import pytest
import yaml

LAW = PowerLaw(0.02, 0.0008, 1.3, 0.25)
RATES = (2.0, 5.0, 9.0, 12.0, 15.0)
ROOT = Path(__file__).parents[2]
IMAGE = ImagePayload(b'')


def frames(seed: int, per_visit: int = 100, rounds: int = 3, network: float = 0.002):
    """Simulate a worker with one queue, frame by frame."""
    random = np.random.default_rng(seed)
    sigma = math.sqrt(math.log1p(LAW.cv ** 2))
    records = []
    for visit in plan(RATES, rounds, per_visit, seed):
        free = 0.0
        for at in visit.moments:
            service = LAW.mean(visit.rate, 1) * random.lognormal(-sigma ** 2 / 2, sigma)
            wait = max(0.0, free - at)
            free = at + wait + service
            trip = network * random.lognormal(-0.045, 0.3)
            records.append(FrameRecord(
                visit.block, visit.rate, at, 0.0, 'ok', wait + service + trip, wait,
                0.1 * service, 0.1 * service, 0.7 * service, 0.1 * service))
    return records


def test_a_plan_visits_every_rate_in_every_round_as_poisson() -> None:
    visits = plan((2.0, 8.0), 50, 40, 3)
    assert [v.block for v in visits] == list(range(100))
    for first, second in zip(visits[::2], visits[1::2]):
        assert {first.rate, second.rate} == {2.0, 8.0}
    assert len({visit.rate for visit in visits[::2]}) == 2, 'the order is drawn by lot'
    for rate in (2.0, 8.0):
        gaps = np.concatenate([np.diff(v.moments, prepend=0.0) for v in visits if v.rate == rate])
        assert gaps.mean() == pytest.approx(1.0 / rate, rel=0.1)
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)
    assert plan((2.0, 8.0), 2, 5, 3) == plan((2.0, 8.0), 2, 5, 3)
    assert plan((2.0, 8.0), 2, 5, 3) != plan((2.0, 8.0), 2, 5, 4)


def test_service_queue_and_network_are_told_apart() -> None:
    result = evaluate(frames(1), seed=0)
    law = result.calibration.power_law()
    for rate in RATES:
        assert law.mean(rate, 1) == pytest.approx(LAW.mean(rate, 1), rel=0.05)
    assert law.cv == pytest.approx(0.25, rel=0.2)
    assert result.network_mean == pytest.approx(0.002, rel=0.05)
    assert result.network.careful == pytest.approx(0.3, rel=0.2)
    # The queue was not fitted; it follows.
    for rate in evaluate(frames(1, 1000), seed=0).verdict.rates[1:]:
        assert rate.wait == pytest.approx(rate.predicted_wait, rel=0.3)
    held = result.calibration.held_out
    assert held.rule == 'rates above 9/s'
    assert held.median_error <= 0.10


def test_a_restless_machine_is_noticed() -> None:
    assert evaluate(frames(1), seed=0).doubts() == []
    factor = {block: 3.0 if block % 3 == 0 else 1.0 for block in range(15)}
    restless = [replace(r, inference_s=factor[r.block] * r.inference_s) for r in frames(1)]
    assert any('differ by' in doubt for doubt in evaluate(restless, seed=0).doubts())


def test_a_fresh_run_is_covered() -> None:
    model = evaluate(frames(1), seed=0).model()
    for seed in (101, 102, 103):
        verdict = judge(frames(seed, 200), model)
        assert verdict.holds
        assert 0.98 <= verdict.coverage <= 1.0
        assert verdict.coverage_low < verdict.coverage <= verdict.coverage_high


def test_a_slower_worker_is_not_covered() -> None:
    model = evaluate(frames(1), seed=0).model()
    slow = [FrameRecord(
        r.block, r.rate, r.at, 0.0, 'ok', 3.0 * r.latency_s, r.queue_s, 3.0 * r.decode_s,
        3.0 * r.preprocess_s, 3.0 * r.inference_s, 3.0 * r.postprocess_s) for r in frames(5)]
    verdict = judge(slow, model)
    assert verdict.median_error > 0.5
    assert not verdict.holds


def test_lost_frames_are_misses_and_slow_the_rate_down() -> None:
    records = frames(1)
    lost = [r if i % 4 else FrameRecord(r.block, r.rate, r.at, 0.0, 'busy', 0.001)
            for i, r in enumerate(records)]
    verdict = judge(lost, evaluate(records, seed=0).model())
    assert verdict.coverage <= 0.75
    assert not verdict.holds
    assert sum(rate.lost for rate in verdict.rates) == math.ceil(len(records) / 4)
    rates = evaluate(lost, seed=0).calibration.held_out.mean_errors
    assert [rate for rate, _ in rates] == pytest.approx([9.0, 11.25])


def test_two_runs_agree_within_their_own_intervals() -> None:
    one, other = evaluate(frames(11), seed=0), evaluate(frames(12), seed=1)
    assert one.calibration.fit.parameters.keys() == other.calibration.fit.parameters.keys()
    for name, first in one.calibration.fit.parameters.items():
        second = other.calibration.fit.parameters[name]
        assert first.low <= second.high and second.low <= first.high


def test_everything_is_written_and_read_back(tmp_path: Path) -> None:
    records = frames(1)
    result = evaluate(records, seed=0)
    text = write_result(tmp_path, result, records, 'edge', 'yolov5n', {'model': 'yolov5n'},
                        {'rates': list(RATES)})
    write_records(tmp_path, records)
    assert 'median error of the mean' in text
    law, network, pool = read_parameters(tmp_path / 'parameters.yaml', 'yolov5n')
    truth = result.calibration.power_law()
    assert pool == 'edge'
    for name in ('alpha', 'beta', 'gamma', 'cv'):
        assert getattr(law, name) == pytest.approx(getattr(truth, name), rel=1e-5)
    assert network.mean == pytest.approx(result.network_mean, rel=1e-5)
    # ROS would take 1 for an integer.
    values = dispatcher_settings(tmp_path / 'parameters.yaml')['pools']['edge']
    for value in (*values['latency']['yolov5n'].values(), values['network_mean'],
                  values['network_cv']):
        assert isinstance(value, float)
    report = json.loads((tmp_path / 'report.json').read_text())
    assert report['plan']['rates'] == list(RATES)
    assert set(report['intervals']) == set(result.calibration.fit.parameters)
    assert calibrate._plan_before(tmp_path / 'parameters.yaml')['rates'] == list(RATES)
    lines = (tmp_path / 'frames.jsonl').read_text().splitlines()
    assert len(lines) == len(records)
    first = json.loads(lines[0])
    assert first['latency_s'] == pytest.approx(
        first['queue_s'] + first['service_s'] + first['network_s'])
    assert (tmp_path / 'plot.png').read_bytes().startswith(b'\x89PNG')
    page = (tmp_path / 'report.html').read_text()
    assert 'data:image/png;base64,' in page and text.splitlines()[2][:20] in page


@pytest.mark.parametrize('value', [1e-7, 0.0, 1.0, 123456.0, 1e22, 0.0031])
def test_numbers_are_floats_to_yaml(value: float) -> None:
    from laimr_ros.cli.calibration_report import _float
    read = yaml.safe_load(_float(value))
    assert isinstance(read, float)
    assert read == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(('text', 'said'), [
    ('a: [', 'is no YAML'),
    ('dispatcher: {ros__parameters: {pools: {}}}', 'has no pools.<pool>.latency.m'),
    ('dispatcher: {ros__parameters: {pools: {a: {latency: {m: {alpha: 1.0}}}, '
     'b: {latency: {m: {alpha: 1.0}}}}}}', 'choose one with --pool'),
    ('dispatcher: {ros__parameters: {pools: {a: {latency: {m: {alpha: -1.0}}}}}}', 'alpha is -1'),
    ('dispatcher: {ros__parameters: {pools: {a: {latency: {m: {beta: 1.0}}}}}}', 'alpha'),
])
def test_a_wrong_parameter_file_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / 'p.yaml').write_text(text)
    with pytest.raises(ParametersError, match=said):
        read_parameters(tmp_path / 'p.yaml', 'm')


class Worker:
    """Stands in for a client: answers after a while, as often as it is asked to."""

    endpoint = 'nowhere:1'

    def __init__(self, service: float = 0.0, fails: str = '', stalls: int = 0, timings=True):
        self.service, self.fails, self.stalls, self.timings = service, fails, stalls, timings
        self.sent = 0

    async def infer(self, model, image, timeout_s, frame_id=''):
        self.sent += 1
        if self.stalls and self.sent % 10 == 5:
            self.stalls -= 1
            time.sleep(0.08)  # The whole host stands still.
        if self.fails:
            raise InferenceError(ErrorKind(self.fails), 'it said so')
        await asyncio.sleep(self.service)
        empty = np.zeros((0, 4), np.float32)
        return InferenceReply(empty, empty[:, 0], (), Timings(0.0, 0.0, 0.0, self.service)
                              if self.timings else None)


def drive(worker: Worker, visits, alone: float = 0.02) -> list[FrameRecord]:
    return asyncio.run(sweep(worker, 'm', [IMAGE], visits, 1.0, alone, lambda record: None))


def test_frames_are_sent_whatever_became_of_those_before() -> None:
    # Ten in 50 ms to a worker that needs 100 ms: a closed loop would take a second.
    visits = plan((200.0,), 1, 10, 1)
    begin = time.monotonic()
    records = drive(Worker(0.1), visits, alone=10.0)
    assert time.monotonic() - begin < 0.6
    assert len(records) == 10 and all(record.ok for record in records)


def test_disturbed_visits_are_repeated_and_marked() -> None:
    visits = plan((150.0,), 3, 10, 1)
    records = drive(Worker(stalls=1), visits)
    marked = {record.block for record in records if record.disturbed}
    assert marked
    assert len({record.block for record in records}) == 3 + len(marked)
    counted = [record for record in records if not record.disturbed]
    assert len(counted) == 30


def test_repetition_ends() -> None:
    records = drive(Worker(stalls=1000), plan((150.0,), 3, 10, 1))
    assert len({record.block for record in records}) <= 6
    assert sum(not record.disturbed for record in records) == 30


def test_busy_is_counted_and_unknown_models_end_it() -> None:
    with pytest.raises(SweepError, match='none of 5 frames at 100/s was answered'):
        drive(Worker(fails='busy'), plan((100.0,), 1, 5, 1))
    with pytest.raises(SweepError, match='it said so'):
        drive(Worker(fails='unknown model'), plan((100.0,), 1, 5, 1))


def test_a_server_that_tells_no_times_cannot_be_calibrated() -> None:
    with pytest.raises(SweepError, match='does not tell queue_us'):
        asyncio.run(service_alone(Worker(timings=False), 'm', [IMAGE], 1.0))


@pytest.mark.parametrize(('arguments', 'status', 'said'), [
    ([], 2, 'give either ENDPOINT or --params-file'),
    (['127.0.0.1:1', '--params-file', 'x'], 2, 'give either ENDPOINT or --params-file'),
    (['--params-file', '/nowhere.yaml'], 2, "'/nowhere.yaml': No such file"),
    (['nonsense'], 2, "endpoint 'nonsense'"),
    (['127.0.0.1:1', '--check', '/nowhere.yaml'], 2, "'/nowhere.yaml': No such file"),
    (['127.0.0.1:1', '--images', '/nowhere'], 2, "'/nowhere' does not exist; give a directory"),
    (['127.0.0.1:1', '--images', '/dev'], 2, 'holds no JPEG or PNG'),
    (['127.0.0.1:1', '--images', __file__], 2, 'is a file; give a directory'),
    (['127.0.0.1:1', '--seed', '-1'], 2, '--seed -1; give 0 to'),
    (['127.0.0.1:1', '--out', __file__], 2, 'is a file; give another directory'),
    (['127.0.0.1:1', '--out', '/proc/x'], 2, "--out '/proc/x' cannot be used"),
    (['--params-file', str(ROOT / 'config' / 'demo.yaml')], 2,
     "serves no model 'm', only efficientdet_lite0, yolov5n, yolov5n_512; give one"),
])
def test_a_wrong_option_is_one_clear_line(arguments, status, said, capsys) -> None:
    assert main(['calibrate', '--model', 'm', *arguments]) == status
    error = capsys.readouterr().err
    assert said in error and error.count('\n') == 1


@pytest.mark.parametrize('rates', ['', 'a', '1,-2', '0'])
def test_wrong_rates_are_refused(rates: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(['calibrate', '--model', 'm', '127.0.0.1:1', f'--rates={rates}'])
    assert 'give frames per second' in capsys.readouterr().err


def test_negative_rates_are_no_option(capsys) -> None:
    with pytest.raises(SystemExit):
        main(['calibrate', '--model', 'm', '127.0.0.1:1', '--rates', '-1,0'])
    assert "'-1,0': give frames per second" in capsys.readouterr().err


def test_a_worker_that_is_not_there_is_not_waited_for_longer_than_asked(capsys) -> None:
    for limit, lines in (('0.3', 1), ('2', 2)):
        begin = time.monotonic()
        assert main(['calibrate', '--model', 'm', '127.0.0.1:1', '--timeout', limit]) == 1
        assert time.monotonic() - begin < 8.0
        error = capsys.readouterr().err
        assert f'127.0.0.1:1 was not ready within {limit} s' in error
        assert error.count('\n') == lines
        assert ('waiting up to 2 s for 127.0.0.1:1' in error) == (lines == 2)


def test_default_rates_stay_below_what_it_can_serve() -> None:
    rates = calibrate._default_rates(0.1)
    assert len(rates) == 6 and max(rates) < 8.0 and min(rates) > 0.5
    with pytest.raises(calibrate.CalibrateError, match='give --rates'):
        calibrate._default_rates(0.0)


def test_a_pool_is_chosen_from_a_parameter_file(tmp_path: Path, capsys) -> None:
    file = tmp_path / 'p.yaml'
    file.write_text('dispatcher: {ros__parameters: {pools: {a: {}, b: {}}}}')
    assert main(['calibrate', '--model', 'm', '--params-file', str(file)]) == 2
    assert 'choose one with --pool' in capsys.readouterr().err
    assert main(['calibrate', '--model', 'm', '--params-file', str(file), '--pool', 'c']) == 2
    assert "has no pool 'c', only a, b" in capsys.readouterr().err


def test_networks_that_take_no_time_do_no_harm() -> None:
    result = evaluate(frames(1, network=0.0), seed=0)
    assert result.network_mean == pytest.approx(0.0, abs=1e-9)
    assert Network(result.network_mean, result.network.careful).quantile(0.99) < 1e-6
