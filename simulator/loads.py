"""The load of a measured setup as a workload: how requests come, how long they are, and what they share."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator import mlperf
from simulator.deployment import Deployment
from simulator.engine import Engine
from simulator.errors import NotModelledError
from simulator.lengths import Ended, Fixed, Independent, Lengths, LogNormal, Uniform
from simulator.measurements import Setup
from simulator.recipes import answer_limit, request_count
from simulator.sharing import Prefixes
from simulator.workload import ClosedLoop, OpenLoop, Workload

IMX_RATIO = 0.8  # InferenceMAX draws both lengths from [0.8, 1] x nominal (shared/measurements/README.md, pitfall 1)
SPREADS = mlperf.SPREAD, mlperf.SPREAD  # guess: of prompts and outputs of data sets of which only means are known
SHAREGPT_SPREADS = 0.62, 0.15  # in the 300 requests of LLMServingSim's replays
# Clients with equal requests drift apart by milliseconds: outputs that differ by a token, or by the Engine.drift_tokens
# of a front end that answers one after the other, stand for it
JITTER = 0.002
GATHERED_STEPS = 20  # batch_wait_timeout_iters of InferenceMAX's TensorRT-LLM scripts, see `gathered_steps`
AIPERF_PROMPTS = 100  # AIPerf draws so many prompts and repeats them (--num-dataset-entries of its versions of 2025)
UNITS = 32  # that a repeated prompt is cached in: fewer than the engine's blocks, for speed
ROUNDS = 10  # requests per place of a closed loop, as InferenceMAX and most load generators use
LONGEST = 4  # guess: data sets cut at so many times their mean
OFFLINE_REQUESTS, OPEN_REQUESTS = 3_000, 2_000
MAX_STEPS_TOKENS = 12_000_000  # output tokens of one simulation: fewer requests where they are very long
WAVES = 8  # guess: full batches of MLPerf's runs, of ten minutes and more, at least: else most of one is its drain


class _Load(NamedTuple):
    lengths: Lengths
    output_tokens: float


def _lengths(setup: Setup, model: str, engine: Engine) -> _Load:
    prompt, output = setup.input_tokens, setup.output_tokens
    is_mlperf = mlperf.is_mlperf(setup)
    if is_mlperf and (data := mlperf.lengths(setup, model)):
        return _Load(*data)
    if not prompt or not output:
        raise NotModelledError("lengths", "the source does not state them", "State input_len and output_len")
    if setup.is_inferencemax:
        low = [max(1, round(IMX_RATIO * each)) for each in (prompt, output)]
        return _Load(Independent(Uniform(low[0], round(prompt)), Uniform(low[1], round(output))), 0.9 * output)
    recorded = "ShareGPT" in setup.load
    if recorded or "dataset" in setup.notes or is_mlperf:
        longest, spreads = LONGEST * round(max(prompt, output)), SHAREGPT_SPREADS if recorded else SPREADS
        prompts, outputs = (LogNormal(*each, longest) for each in zip((prompt, output), spreads, strict=True))
        asked = not recorded and _is_asked(output)
        return _Load(Independent(prompts, Fixed(round(output)) if asked else outputs), output)
    if limit := answer_limit(setup):
        return _Load(Independent(Fixed(round(prompt)), Ended(output, limit)), output)
    if setup.regime == "closed_loop" and engine.policy == "continuous":  # prompts-first keeps the waves together
        drift = min(max(engine.drift_tokens, math.ceil(JITTER * output)), round(output) - 1)
        spread = Uniform(round(output) - drift, round(output) + drift)
        return _Load(Independent(Fixed(round(prompt)), spread), output)
    return _Load(Independent(Fixed(max(1, round(prompt))), Fixed(max(1, round(output)))), output)


def _is_asked(output: float) -> bool:
    """Tell whether an output is a length that a load asks for, and not the mean of a data set: a guess.

    TensorRT-LLM's table has 16 and 256 tokens with the same prompts of 467, beside 214 with those of 202.
    """
    return output == round(output) and round(output).bit_count() == 1


def workload_of(setup: Setup, deployment: Deployment, copies: int) -> Workload:
    """Return what one of the copies is sent. NotModelledError where lengths are neither stated nor known."""
    made = _requests(setup, deployment, copies)
    distinct = _distinct_prompts(setup, deployment)
    return replace(made, prefixes=_repeated(made, distinct, deployment)) if distinct else made


def gathered_steps(setup: Setup, deployment: Deployment) -> int:
    """Return for how many steps more the engine lets a prompt wait for others, before it computes them together.

    InferenceMAX's 70b_*_trt_slurm.sh (read 2026-11-21) set batch_wait_timeout_iters for 1,024 tokens each way on fewer
    than eight devices. One of these steps a prompt waits for in any case, until it ends.
    """
    if mlperf.is_mlperf(setup):
        return mlperf.waited_steps(setup, deployment.model.id, deployment.hardware)
    lengths, engine = (setup.input_tokens, setup.output_tokens), deployment.engine.engine
    asked = setup.is_inferencemax and engine == "tensorrt-llm" and "70b" in deployment.model.id
    return GATHERED_STEPS - 1 if asked and lengths == (1024, 1024) and deployment.layout.tp < 8 else 0


def _distinct_prompts(setup: Setup, deployment: Deployment) -> int:
    """Return how many prompts the load repeats, where the engine keeps their cache; 0 where each is its own."""
    if not deployment.engine.prefix_caching or deployment.model.state_bytes():
        return 0
    repeats = "AIPerf" in setup.notes or (setup.is_generated and deployment.engine.engine != "sglang")
    usual = AIPERF_PROMPTS if repeats else 0
    return int(setup.noted(r"(\d+) distinct prompts") or usual)


def _repeated(made: Workload, distinct: int, deployment: Deployment) -> Prefixes:
    """Let requests take the prompts in turn, all before one comes again, in another order each time."""
    rng = np.random.default_rng(made.seed)
    turns = -(-made.request_count // distinct)
    prompt = np.concatenate([rng.permutation(distinct) for _ in range(turns)])[: made.request_count]
    tokens, block = int(made.requests().prompt_tokens.min()), int(deployment.engine.block_size)
    size = block * max(1, tokens // (block * UNITS))
    count = tokens // size
    return Prefixes(np.arange(distinct * count), prompt * count, np.full(len(prompt), count), size)


def _requests(setup: Setup, deployment: Deployment, copies: int) -> Workload:
    load = _lengths(setup, deployment.model.id, deployment.engine)
    stated = request_count(setup)
    of_copy = mlperf.requests_of_copy(setup, deployment.model.id, copies) if mlperf.is_mlperf(setup) else None
    most = max(64, int(MAX_STEPS_TOKENS / load.output_tokens), WAVES * deployment.max_num_seqs if of_copy else 0)
    if setup.regime == "closed_loop" or (setup.concurrency and setup.regime == "fixed_batch"):
        share = max(1, -(-setup.concurrency // copies))
        rounds = 1 if setup.regime == "fixed_batch" else ROUNDS
        count = int(stated / copies) if stated else rounds * share
        return Workload(ClosedLoop(share), load.lengths, max(share, min(count, most)))
    if setup.regime == "open_loop" and setup.rate_per_s:  # without a rate only the saturated throughput is known
        count = min(int(stated or of_copy or OPEN_REQUESTS), most)
        burstiness = setup.noted(r"burstiness ([\d.]+|inf)") or 1.0
        return Workload(OpenLoop(setup.rate_per_s / copies, burstiness), load.lengths, count)
    count = min(int(stated / copies if stated else of_copy or OFFLINE_REQUESTS), most)
    return Workload(ClosedLoop(count), load.lengths, count)
