"""From a published setup to the question that a user would type: names of profiles, degrees, formats, settings."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from simulator.deployment.deployment import Deployment
from simulator.deployment.layouts import usual_cache
from simulator.deployment.memory import memory_plan
from simulator.deployment.sharding import TP_DEGREES
from simulator.deployment.weight_files import usual_format, weight_format
from simulator.engines.engine import Engine, engine_of
from simulator.errors import InfercastError, ProfileError
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.format_names import named_format
from simulator.models.layers import MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.model import Model, checkpoint
from simulator.models.number_formats import number_format
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.validation.desktop import mlx_format, sized_format, stated_rules
from simulator.validation.measurements import Setup
from simulator.validation.sources import Recipe, recipe_of

ROOMY = 0.6  # of the memory: a layout that is not stated leaves the rest to the cache
TIGHT = 0.9  # of the memory: replicas stay within a node where they fit at all
SEQUENCES = 64  # at once at least, where the defaults do not fit
FITTING = ((2048, None), (2048, 0.95), (2048, 0.98))  # tokens of a step and share of the memory, the first that fits
ASYNCHRONOUS = "0.14"  # the first vLLM that decides a step while the one before runs
SCALED = 128  # columns of a block with one scale in fp8-block
PORTS = {("vllm", "Google"): "vllm-tpu"}  # what an engine's name means on a vendor's devices, where it runs as a port
DIES = {"mi250": "mi250-gcd", "tpu7x": "tpu7x-core"}  # packages that sources count, and what software sees of them


@dataclass(frozen=True)
class Placed:
    """A published setup as a deployment: what its source's scripts set, the question about it, its replicas."""

    recipe: Recipe
    question: DeploymentQuestion
    deployment: Deployment
    replicas: int

    @property
    def setup(self) -> Setup:
        """The setup as published, with the devices of one engine."""
        return self.recipe.setup


def place(setup: Setup) -> Placed:
    """Return the deployment that a setup ran on, as a question that a user would type.

    Raises InfercastError where a cell cannot be read, a profile is missing or the setup is not modelled.
    """
    if setup.flaw:
        raise ProfileError("a row that cannot be read", setup.flaw, "Correct the cell")
    hardware, model = _hardware(setup.hardware), _model(setup.model, setup.checkpoint)
    engines = max(1, setup.replicas)
    recipe = recipe_of(replace(setup, devices=max(1, setup.devices // engines)), model, hardware)
    engine = _engine(recipe)
    layout = _laid_out(recipe, Layout(1, 1, 1, *_formats(recipe, engine), model.dtype))
    part, parts = recipe.part or (hardware.id, 1)
    replicas = engines * max(1, recipe.setup.devices // layout.devices) * parts
    # Argonne's scripts for MI250 have tp 4 and 8 where its table has 2 and 4, and in llama.cpp layers over 2, 4 and 8.
    # Google's recipe for TPU7x has tp 2 on one chip
    in_stages = engine.splits_rows and layout.devices == layout.pp
    sees_dies = hardware.id in DIES and (in_stages or (layout.devices == layout.tp and not engine.splits_rows))
    dies = hardware.seen_as * hardware.cores_per_device if sees_dies else 1
    tp_dies, pp_dies = (1, dies) if in_stages else (dies, 1)
    settings = recipe.settings(layout)
    cached_unasked = usual_cache(layout.weight_dtype, engine) or model.dtype
    question = DeploymentQuestion(
        model=model.id,
        hardware=DIES[hardware.id] if sees_dies else part,
        engine=engine.id,
        tp=str(layout.tp * tp_dies),
        pp=str(layout.pp * pp_dies),
        ep=str(layout.ep * dies if layout.ep > 1 else 1),
        dp=str(layout.dp),
        weight_dtype=layout.weight_dtype if layout.weight_dtype != usual_format(model, engine) else "",
        cache_dtype=layout.cache_dtype if layout.cache_dtype != cached_unasked else "",
        max_num_seqs=_text(settings.max_num_seqs),
        max_num_batched_tokens=_text(settings.max_num_batched_tokens),
        max_model_len=settings.max_model_len,
        gpu_memory_utilization=_text(settings.memory_fraction),
        changes=tuple(_words(_rules(recipe, engine))) or None,
    )
    return _that_fits(_that_holds(_with_cache(Placed(recipe, question, question.deployment(), replicas))))


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def _asking(placed: Placed, **changed: Any) -> Placed:
    """Return it with some options of its question changed, by name."""
    question = replace(placed.question, **changed)
    return replace(placed, question=question, deployment=question.deployment())


def _with_cache(placed: Placed) -> Placed:
    """Set the number of KV-cache blocks where a setup states the bytes of its cache per device."""
    stated = placed.setup.engine_setting("kv-cache-memory-bytes")
    if not stated:
        return placed
    plan = memory_plan(placed.deployment)
    blocks = min(plan.blocks_that_fit, int(float(stated) // plan.block_bytes))
    return _asking(placed, num_gpu_blocks_override=blocks + 1)  # one is vLLM's null block


def _that_holds(placed: Placed) -> Placed:
    """Raise max_num_seqs to the load's concurrency per replica where no flag is stated: whoever measures sets it so.

    Where a source's scripts set it, it is theirs; where other flags are stated, those that are not have their defaults.
    """
    deployment, setup, share = placed.deployment, placed.setup, -(-placed.setup.concurrency // placed.replicas)
    stated = placed.question.max_num_seqs or setup.gpu_memory_utilization or setup.max_model_len
    if share <= deployment.max_num_seqs or stated:
        return placed
    tokens = max(deployment.max_num_batched_tokens, share)
    ranks = deployment.layout.dp  # settings count for each
    return _asking(placed, max_num_seqs=str(-(-share // ranks)), max_num_batched_tokens=str(-(-tokens // ranks)))


def _that_fits(placed: Placed) -> Placed:
    """Set what leaves a cache, where the engine's defaults leave none and neither the row nor its scripts set flags.

    A run that was measured fitted: with fewer tokens in a step, or with more of the memory (`FITTING`, a guess).
    """
    setup, asked = placed.setup, placed.question
    stated = (*(setup.max_num_seqs, setup.max_num_batched_tokens, setup.max_model_len), setup.gpu_memory_utilization)
    is_read = type(placed.recipe) is not Recipe  # its source's scripts: what they do not set is the default
    if is_read or any(stated) or asked.gpu_memory_utilization or _holds(placed):
        return placed
    share = -(-max(setup.concurrency, setup.batch) // placed.replicas)
    for tokens, memory_fraction in FITTING:
        step = {"max_num_batched_tokens": str(max(tokens, share)), "max_num_seqs": str(max(share, SEQUENCES))}
        with suppress(InfercastError):
            fitting = _asking(placed, **step, gpu_memory_utilization=_text(memory_fraction))
            if _holds(fitting):
                return fitting
    return placed


def _holds(placed: Placed) -> bool:
    """Tell whether a cache is left that holds one of its sequences."""
    setup = placed.setup
    return memory_plan(placed.deployment).cache_tokens >= setup.context_len + setup.input_tokens + setup.output_tokens


@cache
def _hardware(name: str) -> Hardware:
    return load_hardware(name)


@cache
def _model(name: str, published: str = "") -> Model:
    """Return the model of a published checkpoint, where a profile has that name, else the one that a row names."""
    if published:
        with suppress(ProfileError):
            return checkpoint(published)[0]
    return checkpoint(name)[0]


def _engine(recipe: Recipe) -> Engine:
    """Return the preset that a setup leads to.

    Where its scripts let vLLM decide steps ahead, the whole preset of 0.14 is taken: its host times are those of such
    steps.
    """
    name, version = recipe.preset
    engine = _preset(name, version)
    if (port := PORTS.get((engine.engine, recipe.hardware.vendor))) is not None:
        return _preset(port, version)
    if recipe.decides_ahead and not engine.async_scheduling:
        return _preset(engine.engine, ASYNCHRONOUS)
    return engine


def _rules(recipe: Recipe, engine: Engine) -> dict[str, object]:
    """Return the engine settings that a setup states or its scripts set, by our names (deployment/setting_names.py)."""
    setup = recipe.setup
    cached = {"prefix_caching": setup.prefix_caching == "on"} if setup.prefix_caching else {}
    found = {**recipe.rules, **stated_rules(setup, engine), **cached}
    if setup.threads and recipe.hardware.cores and setup.threads < recipe.hardware.cores:
        found["threads"] = setup.threads
    if not recipe.streams:
        found["stream"] = False
    if recipe.gathered_steps:
        found["gathered_steps"] = recipe.gathered_steps
    if recipe.first_call_s:
        found["first_call_s"] = f"{recipe.first_call_s:g} s"
    return found


def _words(rules: dict[str, object]) -> list[str]:
    """Write settings as `--set` takes them; what is off or none by default is left out.

    >>> _words({"adapters": True, "graph_tokens": 2048, "policy": "static"})
    ['adapters=true', 'graph_tokens=2048', 'policy=static']
    """
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in rules.items()]


@cache
def _preset(name: str, version: str) -> Engine:
    return engine_of(name, version)


def _formats(recipe: Recipe, engine: Engine) -> tuple[str, str]:
    """Weights and cache; weights that neither the row nor its source states are what the engine fetches unasked."""
    setup, model = recipe.setup, recipe.model
    stated = _stated(setup)
    weights = mlx_format(setup, model) if stated == "mlx" else stated or recipe.weights
    if weights in ("", "nvfp4") and "fp4" in model.weight_dtype:  # "fp4" is the checkpoint's own kind
        weights = model.weight_dtype
    weights = weights or usual_format(model, engine)
    named = {"fp8": recipe.fp8_dtype, "nvfp4": recipe.fp4_dtype, "int4": recipe.int4_dtype}
    weights = named_format(recipe.file_format(named.get(weights, weights)))
    weights = weight_format(sized_format(weights, setup, model), model, engine)
    return weights, recipe.cache_dtype(setup.cache_dtype, weights, engine)


def _stated(setup: Setup) -> str:
    """Return the format of weights that a row states, else that of its checkpoint's name.

    16 bits beside a name of fewer (bf16 of Laguna-S-2.1-NVFP4) are the type that it computes in.
    """
    named = ""
    for name in filter(None, (setup.checkpoint, setup.model)):
        with suppress(ProfileError):
            named = named or checkpoint(name)[1]
    computes = (
        setup.weight_dtype in ("bf16", "fp16") and named and number_format(named).bits < number_format("bf16").bits
    )
    return named if computes or not setup.weight_dtype else setup.weight_dtype


def _laid_out(recipe: Recipe, layout: Layout) -> Layout:
    """Return the layout with its degrees; where nothing is stated, the fewest devices that leave room for a cache.

    With data-parallel attention, experts lie on all of its ranks (`Layout`); ranks of a model without experts are
    replicas.
    """
    setup, model = recipe.setup, recipe.model
    pp, tp, dp = max(1, setup.pp), setup.tp, setup.dp if model.is_routed else 1
    if setup.engine_setting("enable_attention_dp") == "true" and dp <= 1:
        tp, dp = 1, setup.tp  # the column's label is the size of the group
    elif tp and setup.ep > 1 and not setup.dp and tp * setup.ep == setup.devices:
        tp = setup.devices  # tensor and expert degree of one group of devices
    elif tp * pp <= setup.devices < tp * pp * dp and tp % dp == 0:
        tp //= dp  # SGLang's --tp with --enable-dp-attention counts the devices of all ranks (server_args.py)
    elif not tp and (known := recipe.degrees):
        tp, pp, dp = known
    elif not tp and dp <= 1:
        tp = setup.devices // pp if setup.replicas else _fewest(recipe, layout)
    tp = max(1, min(tp, setup.devices))
    dp = max(1, min(dp, setup.devices // (tp * pp)))
    whole = setup.ep > 1 or _cuts_scales(model, layout, tp)
    ep = tp * dp if dp > 1 or (whole and tp > 1) else 1
    return replace(layout, tp=tp, pp=pp, ep=ep, dp=dp)


def _cuts_scales(model: Model, layout: Layout, tp: int) -> bool:
    """Tell whether tp would cut an expert within a block of weights that share a scale: then experts are placed whole.

    vLLM refuses it otherwise: "The output_size of gate's and up's weight = 192 is not divisible by weight quantization
    block_n = 128" (vllm-project/vllm pull request 39046, 2026-04).
    """
    blocked = model.weight_dtype == "fp8-block" and layout.weight_dtype.startswith("fp8")
    blocks = (each.ffn for each in model.blocks.values())
    return blocked and any(isinstance(each, MixtureOfExperts) and each.intermediate % (SCALED * tp) for each in blocks)


def _fewest(recipe: Recipe, layout: Layout) -> int:
    """Return the fewest devices whose memory holds the weights and a cache; more than a node only if a node cannot."""
    hardware, devices = recipe.hardware, recipe.setup.devices
    need = layout.weight_bytes(recipe.model.weights(layout))
    node = hardware.link.devices if hardware.link else 1
    fitting = (tp for tp in TP_DEGREES if tp <= devices and need / tp <= ROOMY * hardware.memory_bytes)
    tp = next(fitting, devices)
    return min(tp, int(node)) if need / node <= TIGHT * hardware.memory_bytes else tp
