"""Serving engines: their rules, limits and kernels, as YAML presets beside this file."""
