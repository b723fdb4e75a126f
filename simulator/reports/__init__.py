"""Runs to numbers: latency percentiles, SLOs, breakdowns, timelines, intervals, provenance."""
