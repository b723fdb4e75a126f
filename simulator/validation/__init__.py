"""Published measurements: reading them, turning them into questions, scoring the answers; no physics."""
