"""What the bridge does when an API server misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
import time
from typing import Any

from kubernetes_fake_api import FakeApi, slow, status
from laimr_ros.cluster.base import ReplicaState
from laimr_ros.cluster.kubernetes.credentials import Source
from laimr_ros.cluster.kubernetes.pool import KubernetesPool
from laimr_ros.cluster.kubernetes.replicas import ClusterConfig, KubernetesReplicas
import pytest

READY = ReplicaState.READY


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Return a server."""
    api = FakeApi()
    yield api
    api.close()


@pytest.fixture
def hold(api: FakeApi, tmp_path: Path) -> Iterator[Callable[..., KubernetesReplicas]]:
    """Return a maker of holders."""
    made: list[KubernetesReplicas] = []

    def make(kubeconfig: str = '', **pool: Any) -> KubernetesReplicas:
        config = ClusterConfig(source=Source(kubeconfig or api.kubeconfig(tmp_path)))
        made.append(KubernetesReplicas(
            {'edge': KubernetesPool('deployment/edge', 0, 9, **{'min_interval_s': 0.05, **pool})},
            config))
        return made[-1]

    yield make
    for holder in made:
        holder.close()


def eventually(predicate: Callable[[], Any], what: str, deadline_s: float = 10.0) -> Any:
    """Wait until something holds; return it."""
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.005)
    return value


def endpoints(holder: KubernetesReplicas) -> int:
    """Return how many replicas are ready."""
    return holder.observe('edge').count(READY)


def test_a_number_is_written_once(api: FakeApi, hold: Any) -> None:
    """One read, one write; asking for the same again does neither."""
    holder = hold()
    holder.set_replicas('edge', 3)
    eventually(lambda: api.replicas == 3, 'three')
    for _ in range(20):
        holder.set_replicas('edge', 3)
    holder.set_replicas('edge', 4)
    eventually(lambda: api.replicas == 4, 'four')
    assert api.count('PATCH', 'scale') == 2
    assert {q['fieldManager'] for _, m, _, q in api.requests if m == 'PATCH'} == {'laimr-bridge'}


def test_writes_are_rate_limited_and_the_last_number_counts(api: FakeApi, hold: Any) -> None:
    """A hundred numbers within a moment become few writes."""
    holder = hold(min_interval_s=0.4)
    for count in [2, 3, 4, 5] * 25:
        holder.set_replicas('edge', count)
        time.sleep(0.005)
    holder.set_replicas('edge', 7)
    eventually(lambda: api.replicas == 7, 'the last')
    times = api.times('PATCH', 'scale')
    assert len(times) <= 4
    assert all(b - a >= 0.39 for a, b in pairwise(times))


def test_409_reads_again_and_writes_on_top(api: FakeApi, hold: Any) -> None:
    """Somebody else's write in between is seen before ours."""
    holder = hold()
    eventually(lambda: holder.known('edge'), 'it is known')

    async def change_meanwhile(request: Any) -> None:
        await api._set_replicas(5)

    api.misbehave('PATCH', 'scale', change_meanwhile)
    holder.set_replicas('edge', 3)
    eventually(lambda: api.replicas == 3, 'three')
    assert api.count('PATCH', 'scale') == 2
    # The server has the number before the holder has its answer.
    eventually(lambda: holder.complaints('edge') == (), 'nothing is said any more')


def test_endless_409_pauses_and_says_so(api: FakeApi, hold: Any) -> None:
    """It does not run in circles."""
    holder = hold()
    api.misbehave('PATCH', 'scale', status(409, 'Conflict'), times=100)
    holder.set_replicas('edge', 3)
    eventually(lambda: any('changed by others' in c for c in holder.complaints('edge')), 'said')
    time.sleep(0.5)
    assert api.count('PATCH', 'scale') < 40
    api.behave()
    eventually(lambda: api.replicas == 3, 'three')


def test_429_waits_as_long_as_it_is_told(api: FakeApi, hold: Any) -> None:
    """Retry-After holds, and then the newest number is written."""
    holder = hold()
    eventually(lambda: holder.known('edge'), 'it is known')
    api.misbehave('PATCH', 'scale', status(429, 'TooManyRequests', Retry_After='1'))
    holder.set_replicas('edge', 3)
    eventually(lambda: any('HTTP 429' in c for c in holder.complaints('edge')), 'it is said')
    holder.set_replicas('edge', 4)
    eventually(lambda: api.replicas == 4, 'four')
    first, second = api.times('PATCH', 'scale')
    assert 1.0 <= second - first < 2.0
    eventually(lambda: holder.complaints('edge') == (), 'nothing is said any more')


def test_500_is_tried_again_ever_more_slowly(api: FakeApi, hold: Any) -> None:
    """Backs off, keeps what is known, says what is wrong, and recovers."""
    api.set_pod('a', ready=True)
    holder = hold()
    eventually(lambda: endpoints(holder) == 1, 'one is ready')
    api.misbehave('GET', 'scale', status(500, 'InternalError', 'etcdserver: no leader'), times=4)
    holder.set_replicas('edge', 3)
    eventually(lambda: any('no leader' in c for c in holder.complaints('edge')), 'it is said')
    assert holder.away() and endpoints(holder) == 1
    eventually(lambda: api.replicas == 3, 'three')
    times = api.times('GET', 'scale')
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps[0] < gaps[1] < gaps[2] < gaps[3] < 2.5
    eventually(lambda: not holder.away() and not holder.complaints('edge'), 'all is well again')


def test_410_lists_everything_again(api: FakeApi, hold: Any) -> None:
    """A replica that went meanwhile is gone, one that came is there."""
    api.set_pod('a', ready=True)
    holder = hold()
    eventually(lambda: endpoints(holder) == 1, 'one is ready')
    lists = api.count('GET', 'pods?labelSelector')
    api.forget_pod_silently('a')
    api.set_pod('b', ready=True)
    eventually(lambda: endpoints(holder) == 2, 'the watch told of one, and not of the other')
    api.oldest = api.version + 1
    api.version += 2
    api.cut_streams()
    eventually(lambda: endpoints(holder) == 1, 'listed again')
    assert [r.name for r in holder.observe('edge').replicas] == ['b']
    assert api.count('GET', 'pods?labelSelector') > lists
    assert holder.complaints('edge') == ()


def test_a_cut_stream_is_taken_up_where_it_ended(api: FakeApi, hold: Any) -> None:
    """Not listed again, nothing is lost, bookmarks move the place on."""
    api.set_pod('a', ready=False)
    holder = hold()
    eventually(lambda: api.times('GET', 'pods?labelSelector=app=edge&watch'), 'it watches')
    api.bookmark()
    place = api.version
    eventually(lambda: holder.known('edge'), 'it is known')
    time.sleep(0.1)
    api.cut_streams()
    eventually(
        lambda: any(q.get('watch') and q['resourceVersion'] == str(place)
                    for _, _, path, q in api.requests if path.endswith('/pods')),
        'it goes on from the bookmark')
    api.set_pod('a', ready=True)
    eventually(lambda: endpoints(holder) == 1, 'it is ready')
    listed = [q for _, _, path, q in api.requests if path.endswith('/pods') and 'watch' not in q]
    assert len(listed) == 1


def test_a_truncated_event_is_read_again(api: FakeApi, hold: Any) -> None:
    """Half a line at the end of a stream harms nothing."""
    api.set_pod('a', ready=True)
    holder = hold()
    eventually(lambda: endpoints(holder) == 1, 'one is ready')
    eventually(lambda: api.times('GET', 'pods?labelSelector=app=edge&watch'), 'it watches')
    api.send_raw(b'{"type": "DELETED", "object": {"meta', again=False)
    time.sleep(0.1)
    api.cut_streams()
    api.set_pod('b', ready=True)
    eventually(lambda: endpoints(holder) == 2, 'both are ready')


def test_nonsense_in_a_stream_is_survived(api: FakeApi, hold: Any) -> None:
    """A line that is not JSON, and comes again and again: a list goes around it."""
    api.set_pod('a', ready=True)
    holder = hold()
    eventually(lambda: endpoints(holder) == 1, 'one is ready')
    api.send_raw(b'<html>proxy error</html>\n', again=True)
    api.set_pod('b', ready=True)
    eventually(lambda: endpoints(holder) == 2, 'both are ready')


def test_an_expired_token_is_read_again(api: FakeApi, hold: Any, tmp_path: Path) -> None:
    """401 has the file read again; the request is repeated with the new one."""
    file = tmp_path / 'token'
    file.write_text('good')
    api.set_pod('a', ready=True)
    holder = hold(api.kubeconfig(tmp_path, token_file=str(file)))
    eventually(lambda: endpoints(holder) == 1, 'one is ready')
    api.tokens = {'newer'}
    file.write_text('newer')
    holder.set_replicas('edge', 3)
    eventually(lambda: api.replicas == 3, 'three, with the new token')
    api.cut_streams()
    api.set_pod('b', ready=True)
    eventually(lambda: endpoints(holder) == 2, 'the watch goes on, too')
    assert holder.complaints('edge') == ()


def test_a_token_that_is_not_renewed_is_one_clear_line(api: FakeApi, hold: Any) -> None:
    """Said, tried again, and over when the token is good again."""
    holder = hold()
    eventually(lambda: holder.known('edge'), 'it is known')
    api.tokens = set()
    holder.set_replicas('edge', 3)
    text = eventually(lambda: ''.join(holder.complaints('edge')), 'it is said')
    assert 'Unauthorized (HTTP 401)' in text and '\n' not in text
    assert len(api.requests) < 60
    api.tokens = {'good'}
    eventually(lambda: api.replicas == 3, 'three')


def test_a_slow_server_delays_nothing_else(api: FakeApi, hold: Any) -> None:
    """While one answer is late, watches go on; the newest number is the one that is written."""
    holder = hold()
    eventually(lambda: holder.known('edge'), 'it is known')
    api.misbehave('GET', 'scale', slow(1.5))
    holder.set_replicas('edge', 3)
    time.sleep(0.2)
    api.set_pod('a', ready=True)
    began = time.monotonic()
    eventually(lambda: endpoints(holder) == 1, 'the watch goes on')
    assert time.monotonic() - began < 1.0
    holder.set_replicas('edge', 5)
    eventually(lambda: api.replicas == 5, 'five')
    assert api.count('PATCH', 'scale') == 1


def test_a_server_that_never_answers_is_given_up(api: FakeApi, hold: Any) -> None:
    """After five seconds, and said so."""
    holder = hold()
    eventually(lambda: holder.known('edge'), 'it is known')
    api.misbehave('GET', 'scale', slow(60.0))
    holder.set_replicas('edge', 3)
    eventually(
        lambda: any('no reply within 5 s' in c for c in holder.complaints('edge')), 'it is said')
    eventually(lambda: api.replicas == 3, 'three at the next try')


def test_a_server_that_is_not_there_yet(api: FakeApi, hold: Any, tmp_path: Path) -> None:
    """The holder starts without it; nothing is known, and that is said."""
    kubeconfig = api.kubeconfig(tmp_path)
    Path(kubeconfig).write_text(Path(kubeconfig).read_text().replace(str(api.port), '1'))
    holder = hold(kubeconfig)
    holder.set_replicas('edge', 3)
    _, why = eventually(holder.away, 'it is noticed')
    assert 'http://127.0.0.1:1' in why
    assert not holder.known('edge')


def test_closing_does_not_wait_for_a_slow_server(api: FakeApi, hold: Any) -> None:
    """A stuck request must not hold up the end of a process."""
    holder = hold()
    eventually(lambda: holder.known('edge'), 'it is known')
    api.misbehave('GET', 'scale', slow(60.0))
    holder.set_replicas('edge', 3)
    time.sleep(0.1)
    began = time.monotonic()
    holder.close()
    assert time.monotonic() - began < 1.0
