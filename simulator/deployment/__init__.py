"""One replica: a model sharded over devices under an engine; its memory, offloading, speculation, a batch alone."""
