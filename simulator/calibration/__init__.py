"""Own measurements of kernels and whole runs, turned into hardware profiles and engine presets."""
