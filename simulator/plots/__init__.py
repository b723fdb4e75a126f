"""Plots of results, drawn with matplotlib; each returns a figure, and `plot_file.save` writes it to a file."""
