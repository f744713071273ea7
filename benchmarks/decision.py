"""
Time of one routing decision: ``python -m benchmarks.decision [--json FILE]``.

A decision is ``Controller.handle`` of one frame's arrival, everything included: counters,
arrival windows, lane queue, choice of a replica, prediction. Three lanes, an edge and a cloud
pool; answers come back at the model's service times, so replicas are busy and frames wait. The
scaling step is timed apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import gc
import heapq
import random
import time

from benchmarks.report import add_arguments, quantile, write
from laimr_ros.control.actions import Send
from laimr_ros.control.controller import Controller
from laimr_ros.control.events import FrameArrived, FrameDone, PoolObserved, ReplicaReady, Tick
from laimr_ros.control.nouns import Configuration, Frame, Lane, Pool
from laimr_ros.latency.model import Network, PowerLaw

REPLICAS = (8, 64, 512, 1000)


def make_controller(replicas: int) -> Controller:
    """Return a controller with so many ready replicas, three quarters of them on the edge."""
    models = {
        'low_latency': PowerLaw(0.05, 0.001, 1.2),
        'balanced': PowerLaw(0.1, 0.002, 1.2),
        'precise': PowerLaw(0.2, 0.004, 1.2),
    }
    edge = max(1, replicas * 3 // 4)
    pools = {
        'edge': Pool('edge', models, max_replicas=edge, network=Network(0.001)),
        'cloud': Pool('cloud', models, max_replicas=replicas, max_in_flight=2,
                      network=Network(0.06)),
    }
    lanes = {
        name: Lane(name, name, slo, ('edge', 'cloud'))
        for name, slo in (('low_latency', 0.3), ('balanced', 0.6), ('precise', 1.2))}
    controller = Controller(Configuration(lanes, pools))
    for name, count in (('edge', edge), ('cloud', replicas - edge)):
        controller.handle(0.0, PoolObserved(name, count, 0))
        for i in range(count):
            controller.handle(0.0, ReplicaReady(name, f'{name}-{i}'))
    return controller


def run(replicas: int, decisions: int, load: float, seed: int) -> tuple[list[float], list[float]]:
    """
    Drive a controller in simulated time.

    :param load: offered load as a share of what all replicas can serve.
    :return: times of the arrivals' decisions and of the scaling steps, in seconds.
    """
    rng = random.Random(seed)
    controller = make_controller(replicas)
    lanes = list(controller.configuration.lanes)
    mean = sum(
        controller.configuration.pools['edge'].models[name].mean(0.0, 1) for name in lanes) / 3
    rate = load * replicas / mean
    cameras = [(f'robot{i}', lanes[i % 3]) for i in range(4 * replicas)]
    returns: list[tuple[float, int, str, float]] = []
    times: list[float] = []
    scaling: list[float] = []
    now, next_tick = 0.0, 0.5
    clock = time.perf_counter

    def follow(actions: Sequence[object]) -> None:
        for action in actions:
            if isinstance(action, Send):
                pool = controller.configuration.pools[action.pool]
                service = pool.models[action.model].mean(0.0, 1) * rng.lognormvariate(0.0, 0.15)
                heapq.heappush(returns, (
                    now + action.prediction.wait + pool.network.mean + service, action.frame.id,
                    action.replica, service))

    # The first fifth fills the replicas and is not counted.
    for number in range(decisions + decisions // 5):
        arrival = now + rng.expovariate(rate)
        while True:
            back = returns[0][0] if returns else float('inf')
            first = min(back, next_tick)
            if first > arrival:
                break
            now = max(now, first)
            if back <= next_tick:
                _, frame_id, replica, service = heapq.heappop(returns)
                follow(controller.handle(now, FrameDone(frame_id, replica, 0.0, service)))
            else:
                next_tick += 0.5
                begun = clock()
                actions = controller.handle(now, Tick())
                scaling.append(clock() - begun)
                follow(actions)
        now = arrival
        camera, lane = rng.choice(cameras)
        event = FrameArrived(Frame(number, camera, lane, now, now))
        begun = clock()
        actions = controller.handle(now, event)
        took = clock() - begun
        if number >= decisions // 5:
            times.append(took)
        follow(actions)
    return times, scaling


def main() -> None:
    """Print and write the quantiles in microseconds, medians of several runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument('--decisions', type=int, default=20_000)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--load', type=float, default=0.85)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    gc.collect()
    gc.freeze()
    for replicas in REPLICAS:
        p50, p99, scale = [], [], []
        for seed in range(args.runs):
            times, scaling = run(replicas, args.decisions, args.load, seed)
            p50.append(quantile(times, 0.5))
            p99.append(quantile(times, 0.99))
            scale.append(quantile(scaling, 0.5) if scaling else 0.0)
        figures[f'p50_us_{replicas}'] = 1e6 * quantile(p50, 0.5)
        figures[f'p99_us_{replicas}'] = 1e6 * quantile(p99, 0.5)
        figures[f'scaling_p50_us_{replicas}'] = 1e6 * quantile(scale, 0.5)
    write(figures, args)


if __name__ == '__main__':
    main()
