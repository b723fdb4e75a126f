"""Options that commands share, each declared once; a command takes a group of them as one dataclass."""

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from simulator.cli.text_layout import Format
from simulator.errors import InfercastError
from simulator.limits import MOST_NUMBER, MOST_WHOLE, in_range
from simulator.questions.deployment_question import Choice, DeploymentQuestion
from simulator.questions.words import as_typed, option_of

Option = typer.Option

# Flags: our spelling, then vLLM's.
TP = ("--tp", "--tensor-parallel-size", "-tp")
PP = ("--pp", "--pipeline-parallel-size", "-pp")
DP = ("--dp", "--data-parallel-size", "-dp")
CACHE_DTYPE = ("--cache-dtype", "--kv-cache-dtype")
BATCH = ("--batch", "--batch-size")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters are single options, as typer needs them, from one that takes dataclasses.

    Each field of an options dataclass that is annotated as one becomes an option; the command gets the dataclass built
    from them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def call(**given: Any) -> None:
        typed = {_named(each): given[each.name] for each in ordered if given[each.name] != each.default}
        for name, value in typed.items():
            _refuse_beyond(f"{option_of(name)} {value}", value)
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in _parameters(kind)})
        with as_typed(typed):
            command(**given)

    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        options.extend(_parameters(group) if group else [parameter.replace(annotation=hints[parameter.name])])
    ordered = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    call.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in ordered}
    return call


def _named(parameter: inspect.Parameter) -> str:
    """Return the name of a parameter as its option spells it: "report" of `page`, whose option is --report."""
    told = get_args(parameter.annotation)[1:]  # typer's Option, whose first flag is its first argument, `default`
    spelled = [flag for each in told for flag in (each.default, *(each.param_decls or ())) if isinstance(flag, str)]
    return spelled[0].lstrip("-").replace("-", "_") if spelled else parameter.name


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
        if get_origin(kinds[each.name]) is Annotated
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
    pp: Annotated[str, Option(*PP, metavar="N,..", help="Pipeline parallelism: stages of layers.")] = "1"
    ep: Annotated[str, Option("--ep", metavar="N,..", help="Expert parallelism: 1, or as --tp times --dp.")] = "1"
    dp: Annotated[str, Option(*DP, metavar="N,..", help="Data-parallel attention: its copies; experts lie on all.")] = (
        "1"
    )
    weight_dtype: Annotated[
        str,
        Option("--weight-dtype", metavar="NAME,..", help="Number format of the weights.", show_default="checkpoint's"),
    ] = ""
    cache_dtype: Annotated[
        str, Option(*CACHE_DTYPE, metavar="NAME,..", help="Number format of the KV cache.", show_default="checkpoint's")
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


OutputFormat = Annotated[Format, Option("--format", help="How to print the result.")]
Details = Annotated[bool, Option("--details", help="Print every figure, interval and reason.")]
ReportFile = Annotated[
    Path | None, Option("--report", metavar="FILE", help="Write all of it as one web page to hand on (.html).")
]
