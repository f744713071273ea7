"""The other processes of :mod:`benchmarks.dispatch`: robots, listeners, and bare gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
import json
import os
import struct
import sys
import time

# Stamps are written into, and read out of, serialised messages at this place.
_STAMP = struct.Struct('<iI')
_STAMP_AT = 4


def robot_name(index: int) -> str:
    """Return the name of a robot."""
    return f'robot{index}'


def _say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def due_times(robots: int, rate: float, count: int) -> list[float]:
    """Return when frames are due, in seconds: robots take turns, evenly spaced."""
    return [index / rate for index in range(count)]


def robots_main(robots: int, size: int) -> None:
    """
    Publish frames of all robots from one process.

    Reads lines ``RATE COUNT`` from standard input, publishes, answers with what was done.
    """
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import CompressedImage
    rclpy.init()
    node = rclpy.create_node('robots')
    publishers = [
        node.create_publisher(
            CompressedImage, f'/{robot_name(i)}/image_raw/compressed', qos_profile_sensor_data)
        for i in range(robots)]
    message = CompressedImage(format='jpeg', data=image(size))
    message.header.frame_id = 'camera'
    frame = bytearray(serialize_message(message))
    while not all(p.get_subscription_count() for p in publishers):
        time.sleep(0.05)
    _say(ready=True)
    for line in sys.stdin:
        words = line.split()
        rate, count = float(words[0]), int(words[1])
        begin = time.monotonic()
        late = 0.0
        for index in range(count):
            due = begin + index / rate
            while (left := due - time.monotonic()) > 0.0:
                time.sleep(left)
            late = max(late, -left)
            now = time.time_ns()
            _STAMP.pack_into(frame, _STAMP_AT, now // 10**9, now % 10**9)
            publishers[index % robots].publish(bytes(frame))
        took = time.monotonic() - begin
        _say(published=count, seconds=took, rate=count / took, late_ms=late * 1e3)
    rclpy.try_shutdown()


def listener_main(robots: int) -> None:
    """
    Receive the detections of all robots in one process.

    At each line of standard input tells the latencies since the last one, in milliseconds.
    """
    import threading

    from laimr_ros.nodes.executor import make_executor, spin
    import rclpy
    from rclpy.serialization import deserialize_message
    from vision_msgs.msg import Detection2DArray
    rclpy.init()
    node = rclpy.create_node('listener')
    latencies: list[float] = []
    last = [b'']
    unpack = _STAMP.unpack_from

    def on_detections(message: bytes) -> None:
        now = time.time_ns()
        sec, nanosec = unpack(message, _STAMP_AT)
        latencies.append((now - sec * 10**9 - nanosec) * 1e-6)
        last[0] = message

    for i in range(robots):
        node.create_subscription(
            Detection2DArray, f'/{robot_name(i)}/detections', on_detections, 10, raw=True)
    executor = make_executor()
    executor.add_node(node)
    thread = threading.Thread(target=spin, args=(executor,), daemon=True)
    thread.start()
    _say(ready=True)
    for _ in sys.stdin:
        taken, latencies[:] = list(latencies), []
        found = len(deserialize_message(last[0], Detection2DArray).detections) if last[0] else 0
        _say(latencies_ms=taken, detections=found)
    os._exit(0)


def bare_main(endpoint: str, model: str, size: int) -> None:
    """Send frames to the worker without a dispatcher; speaks like both of the above."""
    asyncio.run(_bare(endpoint, model, size))


async def _bare(endpoint: str, model: str, size: int) -> None:
    from laimr_ros.serving.client import ReplicaClient
    from laimr_ros.serving.codec import ImagePayload
    payload = ImagePayload(image(size))
    async with ReplicaClient(endpoint) as client:
        await client.wait_ready([model])
        _say(ready=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            words = line.split()
            rate, count = float(words[0]), int(words[1])
            latencies: list[float] = []

            async def one(latencies: list[float] = latencies) -> None:
                begin = time.perf_counter()
                await client.infer(model, payload, 5.0)
                latencies.append((time.perf_counter() - begin) * 1e3)

            tasks = []
            begin = time.monotonic()
            for index in range(count):
                left = begin + index / rate - time.monotonic()
                if left > 0.0:
                    await asyncio.sleep(left)
                tasks.append(asyncio.ensure_future(one()))
            await asyncio.gather(*tasks)
            _say(latencies_ms=latencies, seconds=time.monotonic() - begin)


def image(size: int) -> bytes:
    """Return a real JPEG with so many bytes, filled up behind its end as cameras do."""
    import cv2
    import numpy as np
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), np.uint8)
    data = bytes(cv2.imencode('.jpg', noise, [cv2.IMWRITE_JPEG_QUALITY, 60])[1].tobytes())
    return data[:size] + bytes(max(0, size - len(data)))


def main(argv: Sequence[str]) -> None:
    """Run one of them."""
    role, *rest = argv
    if role == 'robots':
        robots_main(int(rest[0]), int(rest[1]))
    elif role == 'listener':
        listener_main(int(rest[0]))
    else:
        bare_main(rest[0], rest[1], int(rest[2]))


if __name__ == '__main__':
    main(sys.argv[1:])
