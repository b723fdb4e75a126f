"""Answers from the memory plan: bytes of weights and cache, and the sequences that fit beside the weights."""

from typing import Any

from simulator.claims.cases import deployment
from simulator.deployment.memory import memory_plan
from simulator.models.model import load_model


def weight_bytes(**options: Any) -> float:
    """Return the bytes of the weights on one device."""
    return memory_plan(deployment(options)).weight_bytes


def cache_bytes(model: str, tokens: int, sequences: int = 1) -> float:
    """Return the bytes of the KV cache of so many sequences of `tokens` tokens, in the model's own number format."""
    return sequences * load_model(model).cache_bytes(tokens)


def sequences(context_tokens: int, **options: Any) -> float:
    """Return how many sequences of a length a device holds at once beside the weights; 0 where these do not fit."""
    return memory_plan(deployment(options)).concurrency(context_tokens)


def parameters(model: str, kind: str = "parameters") -> float:
    """Return the parameters of a model; kind `active_parameters`: those that one token uses."""
    return float(getattr(load_model(model), kind))
