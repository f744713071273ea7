"""The node between a played dispatcher and a real control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
import random
import statistics
import time
from typing import Any

from control_plane import ControlPlane, eventually
from kubernetes_cell import BridgeProcess, Cell, cell, document, ReplicaRecorder
from played_dispatcher import PlayedDispatcher
import pytest


@pytest.fixture
def domain() -> int:
    """Return a domain nobody else uses."""
    return random.randint(1, 230)


@pytest.fixture
def dispatcher(domain: int) -> Iterator[PlayedDispatcher]:
    """Return a dispatcher that is there."""
    dispatcher = PlayedDispatcher(domain)
    yield dispatcher
    dispatcher.close()


@pytest.fixture
def start(domain: int, tmp_path: Path) -> Iterator[Callable[..., BridgeProcess]]:
    """Return a maker of bridges."""
    made: list[BridgeProcess] = []

    def start(home: Cell, **parameters: Any) -> BridgeProcess:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(BridgeProcess(home, domain, directory, **parameters))
        return made[-1]

    yield start
    for bridge in made:
        bridge.close()
        print(bridge.log.read_text())


def wait(dispatcher: PlayedDispatcher, count: int) -> list[str]:
    """Wait for a number of endpoints; return them."""
    eventually(
        lambda: len(dispatcher.endpoints()) == count and 'none' not in dispatcher.endpoints(),
        f'{count} endpoints', explain=lambda: (dispatcher.endpoints(), dispatcher.diagnostics))
    return dispatcher.endpoints()


def test_a_number_becomes_pods_and_pods_become_endpoints(
    plane: ControlPlane, start: Any, dispatcher: PlayedDispatcher,
) -> None:
    """Half a second from the dispatcher's word to the pods, in the median."""
    with cell(plane) as home:
        bridge = start(home)
        wait(dispatcher, 1)
        took = []
        for count in (2, 3, 4, 5, 6, 7, 8, 9):
            known = len(home.kubelet.seen_at)
            time.sleep(0.6)
            began = time.monotonic()
            dispatcher.ask(count)
            eventually(lambda known=known: len(home.kubelet.seen_at) > known, 'a pod is created')
            took.append(max(home.kubelet.seen_at.values()) - began)
            wait(dispatcher, count)
        print(f'desired to pod created: median {statistics.median(took):.3f} s, '
              f'all {[round(t, 3) for t in sorted(took)]}')
        assert statistics.median(took) <= 0.5
        addresses = sorted(f'{c.address}:8500' for c in home.kubelet.containers.values())
        assert sorted(dispatcher.endpoints()) == addresses
        eventually(lambda: dispatcher.ready['edge'][-1:] == [9], 'ready_replicas')
        eventually(lambda: dispatcher.starting['edge'][-1:] == [0], 'starting_replicas')
        eventually(lambda: dispatcher.start_up_s['edge'], 'start_up_time')
        eventually(lambda: dispatcher.says('pool edge') == '9 of 9 ready', 'diagnostics')
        facts = dispatcher.diagnostics['pool edge']
        assert facts['level'] == b'\0' and facts['workload'] == 'deployment/laimr-worker-edge'
        assert dispatcher.says('cluster') == f'connected to {plane.server}'
        began = time.monotonic()
        assert bridge.close() == 0
        assert time.monotonic() - began < 5.0
        # The pods are the cluster's: they stay, and so do their endpoints.
        assert home.replicas == 9 and sorted(dispatcher.endpoints()) == addresses


def test_a_full_cluster_is_told(
    plane: ControlPlane, start: Any, dispatcher: PlayedDispatcher,
) -> None:
    """In diagnostics, and in the numbers that the dispatcher plans with."""
    with cell(plane, document(cpu='30')) as home:
        start(home)
        wait(dispatcher, 1)
        dispatcher.ask(7)
        wait(dispatcher, 3)
        eventually(
            lambda: dispatcher.says('pool edge') == (
                '3 of 7 ready: 4 of 7 replicas cannot be scheduled: Insufficient cpu'),
            'it is said', explain=lambda: dispatcher.diagnostics)
        assert dispatcher.diagnostics['pool edge']['level'] == b'\1'
        eventually(lambda: dispatcher.starting['edge'][-1] == 0, 'none of them is starting')
        assert dispatcher.ready['edge'][-1] == 3


def test_sigkill_and_restart_change_no_replicas(
    plane: ControlPlane, start: Any, dispatcher: PlayedDispatcher,
) -> None:
    """Neither the death nor the new life touches what runs."""
    with cell(plane) as home:
        first = start(home)
        wait(dispatcher, 1)
        dispatcher.ask(4)
        before = wait(dispatcher, 4)
        recorder = ReplicaRecorder(home)
        first.kill()
        second = start(home)
        eventually(
            lambda: 'acts' in second.log.read_text(), 'the second acts', explain=(
                lambda: second.log.read_text()))
        dispatcher.ask(5)
        wait(dispatcher, 5)
        assert recorder.close() == [4, 5]
        assert set(before) < set(dispatcher.endpoints())


def test_the_second_bridge_takes_over(
    plane: ControlPlane, start: Any, dispatcher: PlayedDispatcher,
) -> None:
    """Of two, one acts; when it is killed, the other goes on within the Lease's time."""
    with cell(plane) as home:
        first = start(home)
        wait(dispatcher, 1)
        second = start(home)
        eventually(
            lambda: 'only watching' in dispatcher.says('cluster'), 'the second watches')
        first.kill()
        dispatcher.ask(3)
        began = time.monotonic()
        wait(dispatcher, 3)
        print(f'taken over within {time.monotonic() - began:.1f} s')
        # 3 s of Lease, and as much to notice it twice.
        assert time.monotonic() - began < 10.0
        assert 'this bridge acts' in second.log.read_text()
        assert home.replicas == 3


def test_bad_permissions_are_one_line_in_diagnostics(
    plane: ControlPlane, start: Any, dispatcher: PlayedDispatcher,
) -> None:
    """Level ERROR, and which right lacks."""
    with cell(plane) as home:
        plane.admin(
            'DELETE', '/apis/rbac.authorization.k8s.io/v1/namespaces/'
            f'{home.namespace}/rolebindings/laimr-bridge')
        start(home, lease_name='')
        text = eventually(
            lambda: 'no permission' in dispatcher.says('pool edge')
            and dispatcher.says('pool edge'), 'it is said', explain=lambda: dispatcher.diagnostics)
        assert text.startswith('its replicas are not known: no permission: deployments.apps')
        assert '\n' not in text
        assert dispatcher.diagnostics['pool edge']['level'] == b'\2'
        # What is not known is not told.
        assert dispatcher.endpoints() == ['none'] and not dispatcher.ready['edge']
