"""The scheduler of an engine, compiled: the same code drives the simulator and the reference engine."""
