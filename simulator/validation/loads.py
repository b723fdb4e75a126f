"""The load of a measured setup as a workload: how requests come, how long they are, and what they share."""

from dataclasses import replace

import numpy as np

from simulator.engines.engine import Engine
from simulator.errors import NotModelledError
from simulator.validation.measurements import UNIFORM
from simulator.validation.setups import Placed
from simulator.validation.sources import Recipe
from simulator.validation.sources.mlperf import SPREAD
from simulator.validation.sources.recipe import Load
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.lengths import Fixed, Independent, LogNormal, Uniform
from simulator.workloads.shared_prefixes import IntArray, Prefixes
from simulator.workloads.workload import Workload

SPREADS = SPREAD, SPREAD  # guess: of prompts and outputs of data sets of which only means are known
SHAREGPT_SPREADS = 0.62, 0.15  # in the 300 requests of LLMServingSim's replays
UNITS = 32  # to twice as many, that a repeated prompt is cached in: fewer than the engine's blocks, for speed
ROUNDS = 10  # requests per place of a closed loop, as InferenceMAX and most load generators use
LONGEST = 4  # guess: data sets cut at so many times their mean
OFFLINE_REQUESTS, OPEN_REQUESTS = 3_000, 2_000
MAX_STEPS_TOKENS = 12_000_000  # output tokens of one simulation: fewer requests where they are very long


def _lengths(recipe: Recipe, engine: Engine) -> Load:
    setup = recipe.setup
    if known := recipe.load():
        return known
    prompt, output = setup.input_tokens, setup.output_tokens
    if not prompt or not output:
        raise NotModelledError("lengths", "the source does not state them", "State input_len and output_len")
    if setup.length_spread == UNIFORM:
        return Load(Independent(_uniform(prompt), _uniform(output)), output)
    if recipe.has_data_set:
        recorded = setup.dataset == "llmservingsim"
        longest, spreads = LONGEST * round(max(prompt, output)), SHAREGPT_SPREADS if recorded else SPREADS
        prompts, outputs = (LogNormal(*each, longest) for each in zip((prompt, output), spreads, strict=True))
        asked = not recorded and _is_asked(output)
        return Load(Independent(prompts, Fixed(round(output)) if asked else outputs), output)
    if setup.regime == "closed_loop" and engine.policy == "continuous":  # prompts-first keeps the waves together
        drift = min(engine.drift_tokens, round(output) - 1)
        spread = Uniform(round(output) - drift, round(output) + drift)
        return Load(Independent(Fixed(round(prompt)), spread), output)
    return Load(Independent(Fixed(max(1, round(prompt))), Fixed(max(1, round(output)))), output)


def _uniform(mean: float) -> Uniform:
    """Return lengths from one token on with this mean, as load generators draw them at a range ratio of 0.

    >>> _uniform(512.0)
    Uniform(low_tokens=1, high_tokens=1023)
    """
    return Uniform(1, max(1, round(2 * mean) - 1))


def _is_asked(output: float) -> bool:
    """Tell whether an output is a length that a load asks for, and not the mean of a data set: a guess.

    TensorRT-LLM's table has 16 and 256 tokens with the same prompts of 467, beside 214 with those of 202.
    """
    return output == round(output) and round(output).bit_count() == 1


def workload_of(placed: Placed) -> Workload:
    """Return what one of the copies is sent. NotModelledError where lengths are neither stated nor known."""
    made, engine = _requests(placed), placed.deployment.engine
    caches = engine.prefix_caching and not placed.deployment.model.state_bytes()
    repeats = caches and placed.recipe.distinct_prompts > 0
    return replace(made, prefixes=_repeated(made, placed.recipe, int(engine.block_size))) if repeats else made


def _repeated(made: Workload, recipe: Recipe, block: int) -> Prefixes:
    """Let requests repeat the prompts, the first of which warmed the engine up: these lie in its cache."""
    sent, warming = _prompts(made, recipe)
    size, count = _units(int(made.requests().prompt_tokens.min()), block)
    by_last_use = list(dict.fromkeys(warming[::-1]))[::-1]
    warm = np.array([prompt * count + unit for prompt in by_last_use for unit in reversed(range(count))], np.int64)
    units = np.arange(recipe.distinct_prompts * count)
    return Prefixes(units, sent * count, np.full(len(sent), count), size, warm)


def _units(tokens: int, block: int) -> tuple[int, int]:
    """Return the tokens of a unit and how many a prompt has: few, that leave little of what the engine's blocks hold.

    >>> _units(8000, 16)  # 499 blocks lie before its last token
    (112, 71)
    >>> _units(2000, 16)
    (32, 62)
    """
    held = (tokens - 1) // block
    sizes = range(max(1, held // (2 * UNITS)), max(1, held // UNITS) + 1)
    blocks = min(sizes, key=lambda size: (held % size, -size))
    return blocks * block, held // blocks


def _prompts(made: Workload, recipe: Recipe) -> tuple[IntArray, IntArray]:
    """Return which prompt each request asks, and each that warmed the engine up.

    In turn, all before one comes again, in another order each time; or each one drawn from all.
    """
    rng, distinct, before = np.random.default_rng(made.seed), recipe.distinct_prompts, recipe.warming_requests
    count = before + made.request_count
    in_turn = [rng.permutation(distinct) for _ in range(-(-count // distinct))]
    asked = rng.integers(distinct, size=count) if recipe.draws_prompts else np.concatenate(in_turn)[:count]
    return asked[before:], asked[:before]


def _requests(placed: Placed) -> Workload:
    recipe, setup, copies = placed.recipe, placed.setup, placed.copies
    load = _lengths(recipe, placed.deployment.engine)
    stated, of_copy = recipe.request_count, recipe.requests_of_copy(copies)
    most = max(64, int(MAX_STEPS_TOKENS / load.output_tokens), of_copy or 0)
    if setup.regime == "closed_loop" or (setup.concurrency and setup.regime == "fixed_batch"):
        share = max(1, -(-setup.concurrency // copies))
        rounds = 1 if setup.regime == "fixed_batch" else ROUNDS
        count = int(stated / copies) if stated else rounds * share
        return Workload(ClosedLoop(share), load.lengths, max(share, min(count, most)))
    if setup.regime == "open_loop" and setup.rate_per_s:  # without a rate only the saturated throughput is known
        count = min(int(stated or of_copy or OPEN_REQUESTS), most)
        return Workload(recipe.arrivals(setup.rate_per_s / copies, copies), load.lengths, count)
    count = min(int(stated / copies if stated else of_copy or OFFLINE_REQUESTS), most)
    return Workload(ClosedLoop(count), load.lengths, count)
