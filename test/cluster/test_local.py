"""Worker processes as replicas, against a stand-in worker with every misbehaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import Any

from laimr_ros.cluster.base import PoolStatus, ReplicaState
from laimr_ros.cluster.local import LocalPool, LocalReplicas
import psutil
import pytest

STAND_IN = Path(__file__).with_name('stand_in_worker.py')
ROOT = Path(__file__).parents[2]
# Generous: a deadline only decides how long a failure takes.
DEADLINE_S = 30.0


def eventually(predicate: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until something holds; return it."""
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.005)
    return value


def pool(behaviour: str = 'serve', **fields: Any) -> LocalPool:
    """Return a pool of stand-ins with short times."""
    settings: dict[str, Any] = {
        'command': (sys.executable, str(STAND_IN), behaviour, '{listen}'),
        'environment': {'PYTHONPATH': str(ROOT)},
        'max_replicas': 8,
        'deregister_s': 0.05,
        'first_backoff_s': 0.05,
        'stable_s': 0.5,
    }
    settings.update(fields)
    return LocalPool(**settings)


def children() -> list[psutil.Process]:
    """Return the stand-ins that live."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if str(STAND_IN) in process.cmdline() and process.status() != 'zombie':
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


@pytest.fixture
def base() -> Iterator[Path]:
    """Return a short directory for sockets."""
    with tempfile.TemporaryDirectory(dir='/tmp') as directory:
        yield Path(directory)


class Holder(LocalReplicas):
    """The holder under test, with the history of what listeners were shown."""

    def __init__(self, base: Path, config: LocalPool, **settings: Any) -> None:
        """Hold one pool, named ``p``."""
        self.history: list[PoolStatus] = []
        super().__init__(
            {'p': config}, directory=base, on_change=self._remember, **settings
        )

    def _remember(self, name: str) -> None:
        self.history.append(self.observe(name))

    def count(self, state: ReplicaState) -> int:
        """Return how many replicas are in a state now."""
        return self.observe('p').count(state)

    def wait_ready(self, count: int) -> tuple[str, ...]:
        """Wait until exactly so many are ready and nothing else is left; return the endpoints."""
        def settled() -> bool:
            status = self.observe('p')
            return len(status.endpoints()) == count == len(status.replicas)
        eventually(settled, f'{count} ready replicas')
        return self.observe('p').endpoints()

    def process_of(self, endpoint: str) -> psutil.Process:
        """Return the process that serves an endpoint."""
        return next(p for p in children() if endpoint in p.cmdline())


@pytest.fixture
def hold(base: Path) -> Iterator[Callable[..., Holder]]:
    """Return a maker of holders that are closed at the end, with nothing left behind."""
    made: list[Holder] = []

    def make(config: LocalPool, **settings: Any) -> Holder:
        made.append(Holder(base, config, **settings))
        return made[-1]

    yield make
    for holder in made:
        holder.close()
    assert children() == []
    assert list(base.iterdir()) == []


def test_starts_the_minimum_and_follows_the_number_asked_for(hold):
    """Up, down, up again; ready endpoints are sockets that exist; start-up times are measured."""
    holder = hold(pool(min_replicas=1))
    (first,) = holder.wait_ready(1)
    assert Path(first.removeprefix('unix:')).is_socket()
    holder.set_replicas('p', 3)
    three = holder.wait_ready(3)
    assert three[0] == first and len(set(three)) == 3
    holder.set_replicas('p', 1)
    # The newest leave; the oldest stays.
    assert holder.wait_ready(1) == (first,)
    assert not any(Path(e.removeprefix('unix:')).exists() for e in three[1:])
    holder.set_replicas('p', 2)
    # A newcomer never takes the address of one that went.
    assert not set(holder.wait_ready(2)) & set(three[1:])
    times = holder.observe('p').start_up_s
    assert len(times) == 4 and all(0.0 < t < DEADLINE_S for t in times)


def test_limits_clamp_the_number(hold):
    """Neither fewer than the minimum nor more than the maximum, whatever is asked."""
    holder = hold(pool(min_replicas=1, max_replicas=2))
    holder.set_replicas('p', 100)
    holder.wait_ready(2)
    assert holder.desired('p') == 2
    holder.set_replicas('p', 0)
    holder.wait_ready(1)


def test_limits_change_while_it_runs(hold):
    """The number follows its limits; limits that contradict each other are refused."""
    holder = hold(pool(min_replicas=1, max_replicas=4))
    holder.set_limits('p', 2, 4)
    holder.wait_ready(2)
    holder.set_limits('p', 0, 1)
    holder.wait_ready(1)
    with pytest.raises(ValueError, match='min_replicas 3, max_replicas 2'):
        holder.set_limits('p', 3, 2)
    assert holder.desired('p') == 1


def test_unknown_pool(hold):
    """A pool nobody configured is a KeyError, not a silent nothing."""
    holder = hold(pool())
    with pytest.raises(KeyError):
        holder.observe('q')
    with pytest.raises(KeyError):
        holder.set_replicas('q', 1)


def test_leaves_the_ready_list_before_it_is_asked_to_drain(hold):
    """The process gets SIGTERM only after the delay in which senders hear of it."""
    holder = hold(pool(deregister_s=0.4))
    holder.set_replicas('p', 1)
    (endpoint,) = holder.wait_ready(1)
    process = holder.process_of(endpoint)
    holder.set_replicas('p', 0)
    began = time.monotonic()
    eventually(lambda: not holder.observe('p').endpoints(), 'off the ready list')
    assert process.is_running()
    assert holder.count(ReplicaState.DRAINING) == 1
    eventually(lambda: not holder.observe('p').replicas, 'gone')
    assert time.monotonic() - began >= 0.4
    assert not process.is_running()


def test_scaling_up_while_some_drain_starts_new_ones(hold):
    """One that drains is not revived: whoever heard it goes may count on it."""
    holder = hold(pool('slow'))
    holder.set_replicas('p', 2)
    before = holder.wait_ready(2)
    holder.set_replicas('p', 0)
    eventually(lambda: holder.count(ReplicaState.DRAINING) == 2, 'draining')
    holder.set_replicas('p', 2)
    after = holder.wait_ready(2)
    assert not set(before) & set(after)


def test_one_that_will_not_drain_is_killed(hold):
    """SIGKILL after the grace."""
    holder = hold(pool('stubborn', drain_grace_s=0.2))
    holder.set_replicas('p', 1)
    holder.wait_ready(1)
    holder.set_replicas('p', 0)
    eventually(lambda: not holder.observe('p').replicas, 'killed')


def test_a_killed_worker_is_replaced(hold):
    """Under a new name and address; the dead one leaves the ready list; its reason is told."""
    holder = hold(pool())
    holder.set_replicas('p', 2)
    before = holder.wait_ready(2)
    holder.process_of(before[0]).kill()
    eventually(lambda: before[0] not in holder.observe('p').endpoints(), 'off the ready list')
    after = holder.wait_ready(2)
    assert before[1] in after and before[0] not in after
    reasons = {r.reason for status in holder.history for r in status.replicas}
    assert any('ended by signal 9' in reason for reason in reasons)


def starts(tmp_path: Path) -> int:
    """Return how many workers wrote their log."""
    return sum(p.read_text().count('on fire') for p in tmp_path.glob('*.log'))


def test_crashes_are_retried_ever_more_slowly(hold, tmp_path):
    """A pool that crashes is one process at a time, at doubling intervals, and recovers."""
    behaviour = tmp_path / 'behaviour'
    behaviour.write_text('crash')
    holder = hold(
        pool(f'@{behaviour}', first_backoff_s=0.2, max_backoff_s=1.0, log_directory=tmp_path)
    )
    began = time.monotonic()
    holder.set_replicas('p', 3)
    eventually(lambda: starts(tmp_path) >= 6, 'crashes')
    # Two may start at first; after a failure one at a time, held back 0.2, 0.4, 0.8, 1.0 s.
    assert time.monotonic() - began > 0.4 + 0.8 + 1.0
    status = eventually(
        lambda: next((s for s in [holder.observe('p')] if s.count(ReplicaState.FAILED)), None),
        'failed',
    )
    failed = next(r for r in status.replicas if r.state is ReplicaState.FAILED)
    assert 'status 7' in failed.reason and 'on fire' in failed.reason
    assert len(status.replicas) == 3
    behaviour.write_text('serve')
    holder.wait_ready(3)
    # Once one has stayed up, the failures are forgotten: the next crash costs the first delay.
    eventually(lambda: holder._pools['p'].backoff.failures == 0, 'forgotten failures')


def test_a_bad_configuration_is_told_and_not_retried_at_once(hold):
    """Status 2 is reported with the last line of stderr, and waits for the longest delay."""
    holder = hold(pool('misconfigured', max_backoff_s=600.0), max_starting=1)
    holder.set_replicas('p', 2)
    eventually(lambda: holder.count(ReplicaState.FAILED) == 2, 'failed')
    reason = holder.observe('p').replicas[0].reason
    assert reason.endswith('status 2: worker: weights: /no/such.pt: no such file')
    assert holder._pools['p'].not_before > time.monotonic() + 500.0
    assert children() == []


def test_a_command_that_does_not_exist(hold):
    """The reason names the command; nothing loops."""
    holder = hold(pool(command=('/no/such/worker', '{listen}')))
    holder.set_replicas('p', 1)
    eventually(lambda: holder.count(ReplicaState.FAILED) == 1, 'failed')
    assert '/no/such/worker' in holder.observe('p').replicas[0].reason


def test_one_that_never_gets_ready_is_killed_and_counted(hold):
    """A start that takes too long is a failure like a crash."""
    holder = hold(pool('never', start_timeout_s=0.3, max_backoff_s=600.0, first_backoff_s=600.0))
    holder.set_replicas('p', 1)
    eventually(lambda: children(), 'started')
    eventually(lambda: holder._pools['p'].backoff.failures == 1, 'counted')
    eventually(lambda: holder.count(ReplicaState.FAILED) == 1, 'failed')
    assert 'not ready within 0.3 s' in holder.observe('p').replicas[0].reason
    assert children() == []


def test_crash_just_after_ready_backs_off_too(hold):
    """Being ready for a moment does not clear the failures."""
    holder = hold(pool('brief', first_backoff_s=0.05, max_backoff_s=600.0, stable_s=600.0))
    holder.set_replicas('p', 1)
    eventually(lambda: holder._pools['p'].backoff.failures >= 3, 'failures in a row')
    eventually(
        lambda: any('lost its memory' in r.reason for r in holder.observe('p').replicas), 'reason'
    )


def test_few_start_at_once(hold, tmp_path):
    """Waiting ones count as starting, but only so many processes load at a time."""
    holder = hold(pool(log_directory=tmp_path), max_starting=2)
    holder.set_replicas('p', 6)
    holder.wait_ready(6)
    assert any(s.count(ReplicaState.STARTING) == 6 for s in holder.history)
    # By the workers' own account: at no one's start were more than two loading.
    loads = [
        [float(t) for t in log.read_text().split('loading ')[1].split()[:2]]
        for log in tmp_path.glob('*.log')
    ]
    assert len(loads) == 6
    assert max(sum(b <= began <= e for b, e in loads) for began, _ in loads) <= 2


def test_a_pool_that_wants_many_does_not_hold_up_another(base):
    """Even if none of the many ever becomes ready, the other gets its turn after a while."""
    with LocalReplicas(
        {'many': pool('never'), 'one': pool()}, directory=base, max_starting=2, patience_s=0.3
    ) as holder:
        holder.set_replicas('many', 8)
        eventually(lambda: len(children()) == 2, 'all starts taken')
        holder.set_replicas('one', 1)
        eventually(lambda: holder.observe('one').endpoints(), 'the other pool served')


def test_close_drains_all_and_kills_the_rest(base):
    """Within its bound, the stubborn ones and their children too; sockets and directory gone."""
    holder = LocalReplicas(
        {'good': pool(), 'bad': pool('stubborn'), 'loading': pool('never')}, directory=base
    )
    holder.set_replicas('good', 2)
    holder.set_replicas('bad', 1)
    eventually(
        lambda: len(holder.observe('good').endpoints() + holder.observe('bad').endpoints()) == 3,
        'ready',
    )
    holder.set_replicas('loading', 2)
    eventually(lambda: len(children()) == 5, 'all processes')
    began = time.monotonic()
    holder.close(timeout_s=1.0)
    assert time.monotonic() - began < 2.5
    assert children() == []
    assert list(base.iterdir()) == []
    holder.close()
    holder.set_replicas('good', 1)
    assert children() == []


def test_what_a_worker_started_goes_with_it(hold, tmp_path):
    """A crashed worker's own children are ended before it is replaced."""
    holder = hold(pool('parent', log_directory=tmp_path))
    holder.set_replicas('p', 1)
    (endpoint,) = holder.wait_ready(1)
    pid = int((tmp_path / 'p_0.log').read_text().split('child ')[1].split()[0])
    assert psutil.pid_exists(pid)
    holder.process_of(endpoint).kill()
    eventually(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == 'zombie',
        'the grandchild ended',
    )
    holder.set_replicas('p', 0)


def test_output_is_kept_and_bounded(hold, tmp_path):
    """Every replica has a log file, which a chatty worker cannot grow past its limit."""
    holder = hold(pool('chatty', log_directory=tmp_path, log_max_bytes=10_000))
    holder.set_replicas('p', 1)
    holder.wait_ready(1)
    holder.set_replicas('p', 0)
    eventually(lambda: not holder.observe('p').replicas, 'gone')
    assert sorted(p.name for p in tmp_path.iterdir()) == ['p_0.log', 'p_0.log.1']
    # 2000 lines of 101 bytes were written in bursts; a burst is cut to the limit.
    assert all(p.stat().st_size <= 10_000 for p in tmp_path.iterdir())
    assert 'drained' in (tmp_path / 'p_0.log').read_text()


def test_tcp_address_comes_from_the_worker(hold):
    """With port 0 the endpoint is the one the worker says it got."""
    holder = hold(pool(listen='127.0.0.1:0'))
    holder.set_replicas('p', 1)
    assert holder.wait_ready(1) == ('127.0.0.1:4321',)


def test_nice_while_starting(hold):
    """A worker that loads yields to those that serve, and is an equal once ready."""
    if os.geteuid() != 0:
        pytest.skip('only root may set a nice level back: run as root, or raise RLIMIT_NICE')
    holder = hold(pool('never'), start_nice=7)
    holder.set_replicas('p', 1)
    eventually(lambda: [p for p in children() if p.nice() == 7], 'nice 7')
    serving = hold(pool(), start_nice=7)
    serving.set_replicas('p', 1)
    (endpoint,) = serving.wait_ready(1)
    assert serving.process_of(endpoint).nice() == 0


def test_workers_are_out_of_reach_of_the_terminal(hold):
    """Ctrl-C goes to the terminal's process group: workers are in another."""
    holder = hold(pool())
    holder.set_replicas('p', 1)
    (endpoint,) = holder.wait_ready(1)
    assert os.getpgid(holder.process_of(endpoint).pid) != os.getpgid(0)


def test_no_orphan_and_no_litter_after_a_killed_holder(base):
    """SIGKILL of the holder ends its workers; the next holder sweeps its directory."""
    code = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from laimr_ros.cluster.local import LocalPool, LocalReplicas
        pool = LocalPool(
            command=(sys.executable, {str(STAND_IN)!r}, 'serve', '{{listen}}'),
            min_replicas=2, max_replicas=2)
        holder = LocalReplicas({{'p': pool}}, directory=Path({str(base)!r}))
        while len(holder.observe('p').endpoints()) < 2:
            time.sleep(0.01)
        print('up', flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen(
        [sys.executable, '-c', code],
        stdout=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
    ) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b'up\n'
            workers = children()
            assert len(workers) == 2
        finally:
            holder.send_signal(signal.SIGKILL)
    eventually(lambda: not any(w.is_running() and w.status() != 'zombie' for w in workers),
               'the workers ended', 10.0)
    assert len(list(base.iterdir())) == 1
    LocalReplicas({'p': pool()}, directory=base).close()
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(
    ('fields', 'words'),
    [
        ({'command': ()}, 'command is empty'),
        ({'command': ('worker',)}, '{listen}'),
        ({'min_replicas': 3, 'max_replicas': 2}, 'min_replicas 3, max_replicas 2'),
        ({'min_replicas': -1}, 'min_replicas -1'),
        ({'listen': '127.0.0.1:8001'}, 'port 0'),
    ],
)
def test_bad_pools_say_what_is_wrong(fields, words):
    """One clear error that names the value and the fix."""
    with pytest.raises(ValueError, match=words.replace('{', r'\{')):
        pool(**fields)


def test_paths_too_long_for_a_socket_are_refused(base):
    """Told at once, not at the first start; nothing is left behind."""
    deep = base / ('d' * 90)
    with pytest.raises(ValueError, match='shorter directory or name'):
        LocalReplicas({'p': pool()}, directory=deep)
    assert list(deep.iterdir()) == []
    with pytest.raises(ValueError, match='pool name'):
        LocalReplicas({'a/b': pool()}, directory=base)
    with pytest.raises(ValueError, match='max_starting 0'):
        LocalReplicas({'p': pool()}, directory=base, max_starting=0)
