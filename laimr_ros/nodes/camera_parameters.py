"""The parameters of the camera node, and the source and arrivals made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laimr_ros.cameras.arrivals import ArrivalSpec, PROCESSES
from laimr_ros.cameras.scene import Scene
from laimr_ros.cameras.sources.base import Clock, Source
from laimr_ros.cameras.sources.cloudgripper import CloudGripperSource
from laimr_ros.cameras.sources.drawn import DrawnSource
from laimr_ros.cameras.sources.files import DirectorySource, VideoSource, Warn
from laimr_ros.cameras.sources.v4l2 import V4l2Source
from laimr_ros.nodes.parameters import ParameterSpec

SOURCES = ('scene', 'directory', 'video', 'v4l2', 'cloudgripper')
ENCODINGS = ('bgr8', 'rgb8', 'mono8')

SPECS = (
    ParameterSpec('source', 'scene', 'where frames come from: a drawn cell, a directory of '
                  'images, a video file, a V4L2 device, or a robot of the CloudGripper testbed',
                  choices=SOURCES),
    ParameterSpec('path', '', 'the directory or the video file'),
    ParameterSpec('loop', True, 'begin again after the last image or video frame; otherwise the '
                  'node ends there'),
    ParameterSpec('device', '/dev/video0', 'the V4L2 device'),
    ParameterSpec('url', 'http://localhost:8000', 'address of the CloudGripper API'),
    ParameterSpec('robot', 'robot1', 'name of the robot at the CloudGripper API'),
    ParameterSpec('camera', 'base', 'which camera of the CloudGripper robot',
                  choices=('base', 'top')),
    ParameterSpec('token_env', 'CLOUDGRIPPER_TOKEN',
                  'name of the environment variable with the token of the CloudGripper API'),
    ParameterSpec('timeout', 3.0, 'for one request to the CloudGripper API', 's', 0.05, 60.0),
    ParameterSpec('width', 640, 'of the drawn cell, and wanted of a V4L2 device', 'px', 16, 8192),
    ParameterSpec('height', 480, 'of the drawn cell, and wanted of a V4L2 device', 'px', 16, 8192),
    ParameterSpec('shapes', ['square', 'circle', 't_shape'], 'what lies in the drawn cell',
                  choices=('square', 'circle', 't_shape')),
    ParameterSpec('seed', 0, 'of the drawn cell and of the arrival process', '', 0, 2**31),
    ParameterSpec('rate', 10.0, 'mean rate outside the burst', 'frames/s', 0.001, 1000.0,
                  live=True),
    ParameterSpec('arrivals', 'periodic', 'law of the times between frames', choices=PROCESSES,
                  live=True),
    ParameterSpec('jitter', 0.0, 'periodic only: largest deviation from the beat, as a part of '
                  'the period', '', 0.0, 0.5, live=True),
    ParameterSpec('pareto_shape', 1.5, 'bounded_pareto only: exponent of the tail; lower is '
                  'burstier', '', 0.05, 50.0, live=True),
    ParameterSpec('pareto_ratio', 100.0, 'bounded_pareto only: longest interval over shortest', '',
                  1.001, 1e6, live=True),
    ParameterSpec('burst_start_s', 0.0, 'when the burst begins, after the first frame', 's', 0.0,
                  live=True),
    ParameterSpec('burst_duration_s', 0.0, 'how long the burst lasts; 0 for none', 's', 0.0,
                  live=True),
    ParameterSpec('burst_factor', 1.0, 'by how much the rate is multiplied in the burst', '', 1e-3,
                  1e3, live=True),
    ParameterSpec('start_at', 0.0, 'time of the first frame since the epoch, so that robots can '
                  'begin together; 0 for at once', 's', 0.0),
    ParameterSpec('jpeg_quality', 90, 'of frames that are not compressed yet', '', 1, 100,
                  live=True),
    ParameterSpec('frame_id', '', 'of the headers; empty for <namespace>/camera_optical_frame'),
    ParameterSpec('publish_raw', False, 'also publish image_raw, for who subscribes to it',
                  live=True),
    ParameterSpec('encoding', 'bgr8', 'of image_raw', choices=ENCODINGS, live=True),
    ParameterSpec('truth_file', '', 'file that gets one JSON line a frame with what is in the '
                  'drawn cell; empty for none'),
)


def arrival_spec(values: Mapping[str, Any]) -> ArrivalSpec:
    """Return the arrival process that parameters describe. :raises ValueError: if it cannot be."""
    return ArrivalSpec(
        process=values['arrivals'], rate_hz=values['rate'],
        **{name: values[name] for name in (
            'jitter', 'pareto_shape', 'pareto_ratio', 'burst_start_s', 'burst_duration_s',
            'burst_factor')},
    )


def make_source(values: Mapping[str, Any], clock: Clock, warn: Warn) -> Source:
    """
    Return the source that parameters describe.

    :param clock: gives the stamps.
    :param warn: is told of files that cannot be read.
    :raises CameraError: if it cannot be made.
    """
    kind = values['source']
    if kind == 'directory':
        return DirectorySource(values['path'], values['loop'], warn, clock)
    if kind == 'video':
        return VideoSource(values['path'], values['loop'], clock)
    if kind == 'v4l2':
        return V4l2Source(values['device'], values['width'], values['height'], clock)
    if kind == 'cloudgripper':
        return CloudGripperSource(values['url'], values['robot'], values['camera'],
                                  values['token_env'], values['timeout'])
    scene = Scene(values['seed'], values['width'], values['height'], tuple(values['shapes']))
    return DrawnSource(scene, clock)
