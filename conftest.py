"""Modules whose doctests need more than the base: the reference engine, and the adapters of other engines."""

from importlib.util import find_spec

collect_ignore = ["simulator/reference/vllm_cpu.py", "simulator/reference/openvino_cpu.py"]
if any(find_spec(name) is None for name in ("torch", "gguf", "safetensors", "tokenizers")):
    collect_ignore_glob = ["simulator/reference/*"]
