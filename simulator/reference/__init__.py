"""The reference engine: a small real engine in plain torch that the simulator is checked against.

It is driven by the simulator's own `begin` and `end` (simulator/simulation/engine_loop.py): one loop, two clocks.
Nothing imports it but the command line; it needs `pip install 'infercast[reference]'`.
"""

from importlib.util import find_spec

from simulator.errors import InfercastError

NEEDS = ("torch", "gguf", "safetensors", "tokenizers")
_missing = [name for name in NEEDS if find_spec(name) is None]
if _missing:
    raise InfercastError(
        "the reference engine", f"{', '.join(_missing)} not installed", "pip install 'infercast[reference]'"
    )
