"""A measured setup as a row of a table of measurements states it, and the recipe of its source."""

from simulator.hardware.hardware import load_hardware
from simulator.models.model import load_model
from simulator.validation.measurements import Setup
from simulator.validation.sources import Recipe, recipe_of


def setup(**changed: object) -> Setup:
    stated = {name: 0 if kind in ("int", "float", int, float) else "" for name, kind in Setup.__annotations__.items()}
    stated |= {"hardware": "H100 SXM 80GB", "devices": 1, "tp": 1, "model": "Llama-3.1-8B", "engine": "vLLM"}
    stated |= {"engine_version": "0.12.0", "input_tokens": 1024.0, "output_tokens": 64.0, "concurrency": 32}
    return Setup(**{**stated, "load": "closed-loop concurrency, 500 requests", **changed})  # type: ignore[arg-type]


def recipe(given: Setup) -> Recipe:
    return recipe_of(given, load_model(given.model), load_hardware(given.hardware))
