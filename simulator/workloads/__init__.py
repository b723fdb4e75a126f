"""What users send: arrivals, lengths, shared prefixes, recorded traces; presets as YAML beside this file."""
