"""The controller under a simulated clock: workloads, worlds, scenarios and the engine."""
