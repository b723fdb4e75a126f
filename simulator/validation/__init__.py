"""Published measurements: read, turned into the questions that users type, and scored; no physics is computed here."""
