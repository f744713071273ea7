"""Experiments: many simulated runs, the numbers made of them, and what they say of claims."""
