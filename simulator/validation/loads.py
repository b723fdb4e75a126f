"""The load of a measured setup as a question: how requests arrive, how long they are, what they share."""

from dataclasses import replace
from typing import Any

from simulator.cost.slo_rate import EVERYTHING_PER_S
from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment
from simulator.deployment.estimate import estimate
from simulator.deployment.memory import memory_plan
from simulator.errors import InfercastError, NotModelledError
from simulator.questions.batch_question import BatchQuestion, BatchSizes
from simulator.questions.length_words import in_words
from simulator.questions.load_question import LoadQuestion, RunQuestion, SloQuestion
from simulator.questions.workload_question import ROUNDS, WorkloadQuestion
from simulator.validation.measurements import UNIFORM
from simulator.validation.setups import Placed
from simulator.validation.sources import Recipe
from simulator.validation.sources.mlperf import SPREAD
from simulator.validation.sources.recipe import Balancer
from simulator.workloads.arrivals import Arrivals, OpenLoop, Released
from simulator.workloads.lengths import Distribution, Ended, Fixed, LogNormal, Quantiles, Uniform

SPREADS = SPREAD, SPREAD  # guess: variation of prompts and outputs of data sets of which only means are known
SHAREGPT_SPREADS = 0.62, 0.15  # the same in the 300 requests of LLMServingSim's replays
LONGEST = 4  # guess: times their mean at which lengths of such data sets are cut
OFFLINE_REQUESTS, OPEN_REQUESTS = 3_000, 2_000
MAX_STEPS_TOKENS = 12_000_000  # output tokens of one simulation at most: fewer requests where they are long
FIRST_TOKENS, DECODES = ("ttft_ms", "prefill_ms"), ("tpot_ms", "itl_ms", "decode_tok_s_per_user")
ONE_DECODE = 2  # output tokens of one decode step: the prefill yields the first
DEFAULT_LENGTHS = (8, 128)  # guess: prompt and output of single streams without stated lengths
Question = BatchQuestion | LoadQuestion


def question_of(placed: Placed) -> Question:
    """Return the question about a setup's load: a batch or a simulated load.

    Raises NotModelledError for a load that is not modelled or not stated.
    """
    setup = placed.setup
    if setup.not_modelled:
        raise NotModelledError(setup.not_modelled, "it is not modelled", "Leave the row out")
    if setup.regime is None:
        because = "the source does not say how requests came"
        raise NotModelledError("the load", because, "State batch or concurrency")
    if setup.regime == "closed_loop" and not setup.concurrency:
        because = "the source does not say how many requests a closed loop keeps in flight"
        raise NotModelledError("the load", because, "State concurrency")
    if setup.regime in ("fixed_batch", "single"):
        return _batch(placed)
    return _load(placed)


def about_metric(asked: BatchQuestion, placed: Placed, metric: str) -> BatchQuestion:
    """Return the question about a batch that has a metric.

    A first token may have been measured on another batch size (`prefill_batch`); a decode metric of a run that states
    one output token is asked of two.
    """
    sizes = asked.sizes
    if metric in FIRST_TOKENS and placed.setup.prefill_batch:
        sizes = replace(sizes, batch=str(placed.setup.prefill_batch * placed.replicas))
    if metric in DECODES and int(sizes.output_len) < ONE_DECODE:
        sizes = replace(sizes, output_len=str(ONE_DECODE))
    return replace(asked, sizes=sizes)


def _batch(placed: Placed) -> Question:
    """Return the question about a batch; where some requests wait for KV cache, it is a simulated load."""
    sizes = _sizes(placed, max(1, placed.setup.batch))
    if not _fits(placed.deployment, sizes.batches()[0]):
        if _queues(placed.deployment, sizes.batches()[0]):
            return _queued(placed, sizes)
        sizes = _sizes(placed, max(1, placed.setup.batch), assume_fits=True)
    return BatchQuestion(placed.question, sizes)


def _sizes(placed: Placed, size: int, *, assume_fits: bool = False) -> BatchSizes:
    setup = placed.setup
    prompt, output = round(setup.input_tokens), round(placed.recipe.output_tokens)
    depth = setup.context_len if not setup.output_tokens else 0
    if not prompt and not output:
        prompt, output = DEFAULT_LENGTHS
    if not prompt and not setup.starts_empty:
        prompt = DEFAULT_LENGTHS[0]
    return BatchSizes(str(size), str(max(1, prompt)), str(max(1, output)), depth, placed.replicas, assume_fits)


def _fits(deployment: Deployment, batch: Batch) -> bool:
    try:
        estimate(deployment, batch)
    except InfercastError:
        return False
    return True


def _queues(deployment: Deployment, batch: Batch) -> bool:
    """Tell whether some requests of a batch wait until there is KV cache for them."""
    engine = deployment.engine
    queues = engine.policy in ("continuous", "prompts-first") and not engine.is_reserved
    tokens = batch.context_tokens + batch.prompt_tokens + batch.output_tokens
    return queues and batch.output_tokens > 1 and batch.size > memory_plan(deployment).sequences(tokens)


def _queued(placed: Placed, sizes: BatchSizes) -> LoadQuestion:
    """Return the question about all requests of a batch being sent at once."""
    users = WorkloadQuestion(
        input_len=sizes.input_len,
        output_len=sizes.output_len,
        max_concurrency=sizes.batch,
        num_prompts=int(sizes.batch),
    )
    return LoadQuestion(placed.question, users, run=_run(placed, assume_fits=True))


def _load(placed: Placed) -> LoadQuestion:
    setup, recipe = placed.setup, placed.recipe
    prompt, output, mean_output = _lengths(placed)
    longest = _longest(prompt) + _longest(output)
    users = WorkloadQuestion(
        input_len=in_words(prompt),
        output_len=in_words(output),
        random_range_ratio=recipe.random_range_ratio,
        client=recipe.client,
        **_repeated(recipe),
        **_arrivals(placed, mean_output),
    )
    limits_s = recipe.latency_limits_s
    accepted = SloQuestion(f"ttft:{limits_s[0]:g}s,tpot:{limits_s[1]:g}s", 0.99) if limits_s else SloQuestion()
    counted = bool(recipe.request_count) and not limits_s  # else the source goes on, at a rate that it states
    whole = setup.regime == "open_loop" and (counted or not setup.rate_per_s)
    too_long = longest > memory_plan(placed.deployment).max_model_len
    run = _run(placed, whole_run=whole, within_slo=bool(limits_s), assume_fits=too_long)
    return LoadQuestion(placed.question, users, accepted, run)


def _repeated(recipe: Recipe) -> dict[str, Any]:
    """Return the options of prompts that the load generator sends again, none where each request has its own."""
    if not recipe.distinct_prompts:
        return {}
    strategy = "random" if recipe.draws_prompts else "shuffle"
    return {
        "num_dataset_entries": recipe.distinct_prompts,
        "dataset_sampling_strategy": strategy,
        "warmup_request_count": recipe.warmup_requests,
    }


def _run(placed: Placed, **counted: bool) -> RunQuestion:
    """Return how a run is counted, with the replicas and what is in front of them."""
    router, workers = placed.recipe.balancer if placed.replicas > 1 else Balancer()
    return RunQuestion(placed.replicas, router=router, router_workers=workers, **counted)


def _lengths(placed: Placed) -> tuple[Distribution, Distribution, float]:
    """Return the distributions of prompt and output lengths, and the mean output in tokens."""
    setup, recipe = placed.setup, placed.recipe
    if known := recipe.load():
        return known.prompt, known.output, known.output_tokens
    prompt, output = setup.input_tokens, setup.output_tokens
    if not prompt or not output:
        raise NotModelledError("lengths", "the source does not state them", "State input_len and output_len")
    if setup.length_spread == UNIFORM:
        return _uniform(prompt), _uniform(output), output
    if recipe.has_data_set:
        recorded = setup.dataset == "llmservingsim"
        longest, spreads = LONGEST * round(max(prompt, output)), SHAREGPT_SPREADS if recorded else SPREADS
        prompts, outputs = (LogNormal(*each, longest) for each in zip((prompt, output), spreads, strict=True))
        return prompts, outputs, output
    return Fixed(max(1, round(prompt))), Fixed(max(1, round(output))), output * recipe.mean_of_nominal


def _longest(lengths: Distribution) -> int:
    match lengths:
        case Fixed():
            return lengths.tokens
        case Uniform():
            return lengths.high_tokens
        case Quantiles():
            return lengths.tokens[-1]
        case LogNormal() | Ended():
            return lengths.max_tokens
    raise TypeError(f"{lengths!r} has no longest length")


def _uniform(mean: float) -> Uniform:
    """Return lengths from one token on with this mean, as load generators draw them at a range ratio of 0.

    >>> _uniform(512.0)
    Uniform(low_tokens=1, high_tokens=1023)
    """
    return Uniform(1, max(1, round(2 * mean) - 1))


def _arrivals(placed: Placed, mean_output: float) -> dict[str, Any]:
    """Return the options that say how requests arrive, and how many, of all replicas together."""
    recipe, setup, replicas, shares = placed.recipe, placed.setup, placed.replicas, _run(placed).shares
    stated, of_one = recipe.request_count, recipe.requests_of_replica(replicas)
    most = max(64, int(MAX_STEPS_TOKENS / mean_output), of_one or 0)
    if setup.regime == "closed_loop":
        shares = min(shares, setup.concurrency)
        share = -(-setup.concurrency // shares)
        count = int(stated / shares) if stated else ROUNDS * share
        return {"max_concurrency": str(share * shares), "num_prompts": max(share, min(count, most)) * shares}
    rate_per_s = setup.rate_per_s or (EVERYTHING_PER_S if recipe.latency_limits_s else 0.0)
    if setup.regime == "open_loop" and rate_per_s:  # without a rate only the saturated throughput is known
        count = min(int(stated / replicas if stated else of_one or OPEN_REQUESTS), most)
        arrivals = recipe.arrivals(rate_per_s / shares, shares)
        return {"num_prompts": count * replicas, "request_rate": repr(rate_per_s), **_gaps(arrivals)}
    count = min(int(stated / replicas if stated else of_one or OFFLINE_REQUESTS), most)
    return {"num_prompts": max(1, count) * replicas, "request_rate": "inf"}


def _gaps(arrivals: Arrivals) -> dict[str, Any]:
    if isinstance(arrivals, Released):
        return {"release_period": arrivals.held_s}
    if isinstance(arrivals, OpenLoop) and arrivals.balanced_over > 1:
        return {"balanced": True}
    if isinstance(arrivals, OpenLoop) and arrivals.burstiness != 1:
        return {"burstiness": repr(arrivals.burstiness)}
    return {}
