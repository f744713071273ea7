"""Frames over the wire: Open Inference Protocol v2 over gRPC."""
