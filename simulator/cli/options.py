"""Options that commands share, each declared once; a command takes a group of them as one dataclass."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from simulator.deployment.deployment import Deployment
from simulator.deployment.offload import NO_OFFLOAD, host_of
from simulator.errors import InfercastError
from simulator.limits import MOST_NUMBER, MOST_WHOLE, in_range
from simulator.models.number_formats import number_format
from simulator.questions.deployment_question import Choice, DeploymentQuestion
from simulator.roofline.collectives import PCIE_FRACTION
from simulator.roofline.roofline import Rates

Option = typer.Option

# Flags: our spelling, then vLLM's.
TP = ("--tp", "--tensor-parallel-size", "-tp")
PP = ("--pp", "--pipeline-parallel-size", "-pp")
DP = ("--dp", "--data-parallel-size", "-dp")
CACHE_DTYPE = ("--cache-dtype", "--kv-cache-dtype")
BATCH = ("--batch", "--batch-size")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters are single options, as typer needs them, from one that takes dataclasses.

    Each field of an options dataclass becomes an option; the command gets the dataclass built from them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def call(**given: Any) -> None:
        for name, value in given.items():
            _refuse_beyond(f"--{name.replace('_', '-')} {value}", value)
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        options.extend(_parameters(group) if group else [parameter.replace(annotation=hints[parameter.name])])
    ordered = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    call.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in ordered}
    return call


def _refuse_beyond(given: str, value: Any) -> None:
    """Raise InfercastError for a number that no option can mean: whole ones from 2^31 on, others from 10^15 on, NaN."""
    if isinstance(value, int | float):
        in_range(value, given, MOST_WHOLE if isinstance(value, int) else MOST_NUMBER)


def _parameters(group: Any) -> list[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kinds[each.name],
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
        )
        for each in fields(group)
    ]


def use_profiles(folder: Path | None) -> None:
    """Search a folder of the user before the shipped profiles. Raises InfercastError where there is no such folder.

    It is kept in the environment variable INFERCAST_PROFILES, which child processes inherit.
    """
    if folder is None:
        return
    if not folder.is_dir():
        remedy = "Give a folder that holds hardware_profiles/, model_profiles/ or engines/"
        raise InfercastError(f"--profiles {folder}", "there is no such folder", remedy)
    os.environ["INFERCAST_PROFILES"] = str(folder)


Profiles = Annotated[
    Path | None,
    Option(
        "--profiles",
        metavar="DIR",
        envvar="INFERCAST_PROFILES",
        help="Folder of your own profiles, searched before the shipped ones.",
    ),
]


@dataclass(frozen=True)
class DeploymentOptions(DeploymentQuestion):
    """Options for models, devices, engines and their settings; comma lists make every combination."""

    model: Annotated[str, Option("--model", metavar="NAME,..", help="Models: names, aliases or paths of profiles.")]
    hardware: Annotated[str, Option("--hardware", metavar="NAME,..", help="Devices: names, aliases or paths.")]
    engine: Annotated[
        str,
        Option(
            "--engine", metavar="NAME,..", help="Engines; the newest version of each.", show_default="device's usual"
        ),
    ] = ""
    tp: Annotated[str, Option(*TP, metavar="N,..", help="Tensor parallelism: devices that share each layer.")] = "1"
    pp: Annotated[int, Option(*PP, min=1, help="Pipeline parallelism: stages of layers.")] = 1
    ep: Annotated[int, Option("--ep", min=1, help="Expert parallelism: 1, or as --tp times --dp.")] = 1
    dp: Annotated[int, Option(*DP, min=1, help="Data-parallel attention: its copies; experts lie on all.")] = 1
    weight_dtype: Annotated[
        str,
        Option("--weight-dtype", metavar="NAME,..", help="Number format of the weights.", show_default="checkpoint's"),
    ] = ""
    cache_dtype: Annotated[
        str, Option(*CACHE_DTYPE, metavar="NAME,..", help="Number format of the KV cache.", show_default="model's")
    ] = ""
    max_num_seqs: Annotated[
        str, Option("--max-num-seqs", metavar="N,..", help="Sequences in one step at most.", show_default="engine's")
    ] = ""
    max_num_batched_tokens: Annotated[
        str,
        Option(
            "--max-num-batched-tokens", metavar="N,..", help="New tokens in one step at most.", show_default="engine's"
        ),
    ] = ""
    max_model_len: Annotated[
        int | None,
        Option(
            "--max-model-len", help="Tokens of one sequence at most; the cache must hold one.", show_default="model's"
        ),
    ] = None
    gpu_memory_utilization: Annotated[
        str,
        Option(
            "--gpu-memory-utilization",
            metavar="SHARE,..",
            help="Share of memory, of total or free as the engine means it.",
            show_default="engine's",
        ),
    ] = ""
    num_gpu_blocks_override: Annotated[
        int | None,
        Option("--num-gpu-blocks-override", min=2, help="Cache blocks, instead of as many as fit.", show_default="all"),
    ] = None
    changes: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="NAME=VALUE,..", help="Any setting by the engine's own name (or ours); may be given again."
        ),
    ] = None
    speculative_model: Annotated[
        str, Option("--speculative-model", metavar="NAME", help="What drafts: a model, ngram, mtp, eagle or medusa.")
    ] = ""
    num_speculative_tokens: Annotated[
        int | None, Option("--num-speculative-tokens", min=1, help="Tokens drafted per step.")
    ] = None
    acceptance_rate: Annotated[
        str,
        Option(
            "--acceptance-rate",
            metavar="P,..",
            help="Chance that a drafted token is accepted; one for all, or one per position.",
        ),
    ] = ""
    cpu_offload_gb: Annotated[
        float, Option("--cpu-offload-gb", min=0.0, help="GiB of weights per device that stream from the host.")
    ] = 0.0
    gpu_layers: Annotated[
        int | None,
        Option("--gpu-layers", "-ngl", help="Layers on the device; the CPU computes the rest.", show_default="all"),
    ] = None
    kv_offloading_size: Annotated[
        float, Option("--kv-offloading-size", min=0.0, help="GiB of the host's memory for cache per device.")
    ] = 0.0
    host: Annotated[
        str, Option("--host", metavar="NAME", help="CPU of the host, for offloading.", show_default="a guess by class")
    ] = ""
    profiles: Profiles = None

    def choices(self) -> list[Choice]:
        """Return every combination as `DeploymentQuestion.choices` does, after opening the user's own profiles.

        Raises InfercastError where the folder of --profiles is missing.
        """
        use_profiles(self.profiles)
        return super().choices()


def technique_notes(deployments: Iterable[Deployment]) -> list[str]:
    """Return a line each for what drafts, what is offloaded and on which guesses that rests, what is emulated."""
    said: dict[str, None] = {}
    for each in deployments:
        drafts, offload = each.settings.speculation, each.settings.offload
        if drafts is not None:
            rates = ", ".join(f"{rate:g}" for rate in drafts.acceptance)
            yields = f"{drafts.tokens_per_step:.2f} tokens per step and sequence"
            said[f"{drafts.draft} drafts {drafts.tokens} tokens, each accepted with {rates}: {yields} (yours)."] = None
        if offload != NO_OFFLOAD:
            host = host_of(each.hardware, offload).id + ("" if offload.host else " (a guess)")
            said[f"Offloaded to {host}; PCIe at {PCIE_FRACTION:g} of its peak, a guess; nothing is prefetched."] = None
        said |= dict.fromkeys(_emulated(each))
    return list(said)


WIDTHS = {"fp4": 4, "fp8": 8, "int8": 8, "bf16": 16}  # bits of types that are stored as they are multiplied


def _emulated(deployment: Deployment) -> Iterator[str]:
    """Say which weights are multiplied in a wider type than their own, because the device or the engine lacks it."""
    rates = Rates(deployment.hardware, deployment.kernels)
    for stored in dict.fromkeys(op.format for op in deployment.ops if op.rate == "gemm" and not op.on_host):
        own, used = number_format(stored).compute[0], rates.peak(stored)[0]
        if used != own and number_format(stored).bits // 1 == WIDTHS.get(own):
            where = f"{deployment.engine.id} on {deployment.hardware.id}"
            yield f"{stored} weights are emulated: {where} has no GEMMs in {own} and multiplies them in {used}."


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


OutputFormat = Annotated[Format, Option("--format", help="How to print the result.")]
Details = Annotated[bool, Option("--details", help="Print every figure, interval and reason.")]
ReportFile = Annotated[
    Path | None, Option("--report", metavar="FILE", help="Write all of it as one web page to hand on (.html).")
]
