"""Of several bridges one acts, and never two at once."""

from __future__ import annotations

from collections.abc import Iterator
import itertools
from pathlib import Path
import threading
import time
from typing import Any

from aiohttp import web
from kubernetes_fake_api import FakeApi, status
from laimr_ros.cluster.kubernetes.credentials import Source
from laimr_ros.cluster.kubernetes.replicas import ClusterConfig, KubernetesReplicas
import pytest

DURATION_S = 3


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Return a server."""
    api = FakeApi()
    api.tokens = {'a', 'b', 'c'}
    yield api
    api.close()


def bridge(api: FakeApi, tmp_path: Path, name: str) -> KubernetesReplicas:
    """Return a bridge whose token is its name."""
    return KubernetesReplicas({}, ClusterConfig(
        source=Source(api.kubeconfig(tmp_path, name)), lease_name='l', identity=name,
        lease_duration_s=DURATION_S))


def eventually(predicate: Any, what: str, deadline_s: float = 15.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + deadline_s
    while not predicate():
        assert time.monotonic() < end, f'never happened: {what}'
        time.sleep(0.005)


def cut_off(name: str, fault: Any) -> Any:
    """Return a fault that one bridge alone meets."""
    async def answer(request: web.Request) -> web.StreamResponse | None:
        if request.headers['Authorization'] == f'Bearer {name}':
            return await fault(request)  # type: ignore[no-any-return]
        return None
    return answer


def test_never_two_at_once(api: FakeApi, tmp_path: Path) -> None:
    """Whoever is cut off stops acting before another begins, and steps in line when back."""
    bridges = {name: bridge(api, tmp_path, name) for name in ('a', 'b', 'c')}
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            most[0] = max(most[0], sum(b.acting for b in bridges.values()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(3):
            eventually(lambda: any(b.acting for b in bridges.values()), 'one acts')
            (first,) = (name for name, b in bridges.items() if b.acting)
            api.misbehave(
                'GET', 'leases', cut_off(first, status(503, 'ServiceUnavailable')), 10**6)
            eventually(
                lambda first=first: any(b.acting for n, b in bridges.items() if n != first),
                'another acts')
            assert not bridges[first].acting
            api.behave()
            eventually(
                lambda first=first: bridges[first].leader not in ('', first), 'it knows who acts')
    finally:
        done.set()
        watcher.join()
        for each in bridges.values():
            each.close()
    assert most[0] == 1


def test_a_graceful_end_hands_over_at_once(api: FakeApi, tmp_path: Path) -> None:
    """The Lease is given back, not left to run out."""
    first = bridge(api, tmp_path, 'a')
    eventually(lambda: first.acting, 'the first acts')
    second = bridge(api, tmp_path, 'b')
    try:
        first.close()
        assert api.lease is not None and api.lease['spec']['holderIdentity'] == ''
        eventually(lambda: second.acting, 'the second acts', DURATION_S)
        assert api.lease['spec']['leaseTransitions'] >= 1
    finally:
        second.close()


def test_renewals_are_few_and_a_holder_stays(api: FakeApi, tmp_path: Path) -> None:
    """One read and one write every fifth of the Lease's time, and no change of who acts."""
    with bridge(api, tmp_path, 'a') as first, bridge(api, tmp_path, 'b') as second:
        eventually(lambda: first.acting or second.acting, 'one acts')
        holder = first if first.acting else second
        api.requests.clear()
        for _ in itertools.repeat(None, 300):
            assert holder.acting
            time.sleep(0.01)
        assert 5 <= api.count('PUT', 'leases') <= 12
