"""One model on some devices under one engine: memory, offloading, speculation, one batch alone."""
