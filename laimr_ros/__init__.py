"""Latency-aware dispatch of robot camera frames to edge and cloud detectors."""

__version__ = '0.1.0'
