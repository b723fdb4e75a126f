"""Options that commands share, and what they make of the words that a user typed."""
