"""Devices and their prices: YAML profiles in SI, every figure with its source."""
