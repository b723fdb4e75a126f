"""What introductory texts teach about inference, each claim answered by computation: its value and a verdict."""
