"""What commands print: verdicts, rows, columns and tables; `pages/` has the same as web pages."""
