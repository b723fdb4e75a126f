"""Every figure, drawn with matplotlib."""
