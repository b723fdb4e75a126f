"""Plots of results, drawn with matplotlib; each returns a figure, and `roofline_plots.save` writes it to a file."""
