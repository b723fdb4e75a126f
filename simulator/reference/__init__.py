"""The reference engine: a small real engine in plain torch that the simulator is checked against.

It is driven by the simulator's own `begin` and `end` (simulator/simulation/engine_loop.py): one loop, two clocks.
Nothing imports it but the command line; it needs `pip install 'infercast[reference]'`, and says so (InfercastError).
"""

from importlib.util import find_spec

from simulator.errors import InfercastError

NEEDS = ("torch", "gguf", "safetensors", "tokenizers")


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


_missing = [name for name in NEEDS if not _installed(name)]
if _missing:
    raise InfercastError(
        "the reference engine", f"{', '.join(_missing)} not installed", "pip install 'infercast[reference]'"
    )
