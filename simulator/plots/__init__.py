"""Plots of results, drawn with matplotlib."""
