"""Detectors for the demonstration: what they learn from, how they learn, how good they are."""
