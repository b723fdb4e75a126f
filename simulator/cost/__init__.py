"""Capacity within an SLO, bills, and comparisons of deployments."""
