"""What published sources set for an engine and a load, where their rows do not say: a class for each source.

`Recipe` (recipe.py) lists all that a source may set and sets nothing; a source overrides what its scripts do.
"""

from simulator.hardware.hardware import Hardware
from simulator.models.model import Model
from simulator.validation.measurements import Setup
from simulator.validation.sources.aiconfigurator import Aiconfigurator
from simulator.validation.sources.inferencemax import DenseScripts, GptOssScripts, InferenceMax, MiniMaxScripts
from simulator.validation.sources.mlperf import Mlperf
from simulator.validation.sources.papers import Argonne, ConsumerCards, LlmPerfBench, Splitwise, TpuRecipes
from simulator.validation.sources.recipe import Recipe
from simulator.validation.sources.trtllm_docs import TrtllmBench, TrtllmEvicting, TrtllmOffline, TrtllmTable

__all__ = ["RECIPES", "Recipe", "recipe_of"]

RECIPES: tuple[type[Recipe], ...] = (
    *(MiniMaxScripts, DenseScripts, GptOssScripts, InferenceMax),
    *(Aiconfigurator, Mlperf, Argonne, ConsumerCards, Splitwise, TpuRecipes, LlmPerfBench),
    *(TrtllmBench, TrtllmTable, TrtllmEvicting, TrtllmOffline),
    Recipe,  # of every other
)


def recipe_of(setup: Setup, model: Model, hardware: Hardware) -> Recipe:
    """Return what the source of a setup is known to set."""
    return next(each for each in RECIPES if each.wrote(setup))(setup, model, hardware)
