"""Measured kernels and results of one's own, turned into profiles and engine presets."""
