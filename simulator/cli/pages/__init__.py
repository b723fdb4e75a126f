"""Answers as web pages (`--report`, `infercast report`): sections from the rows and values that a command has computed.

Matplotlib is imported with these modules, which takes half a second: import them only where a page is asked for.
"""
