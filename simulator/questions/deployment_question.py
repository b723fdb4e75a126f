"""Which deployments are asked about: profile names, parallel degrees, number formats and engine settings."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, TypeVar

from simulator.deployment.deployment import Deployment, deployment_of
from simulator.deployment.layouts import running_layout
from simulator.deployment.offload import Offload
from simulator.deployment.setting_names import configure
from simulator.deployment.settings import Settings
from simulator.deployment.speculation import Speculation
from simulator.engines.engine import Engine, load_engine, usual_engine
from simulator.errors import InfercastError
from simulator.executors.program import file_digest, library_digest
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.layout import Layout
from simulator.models.model import Model, checkpoint
from simulator.questions.words import (
    as_typed,
    comma_list,
    distinct_parts,
    named,
    plain,
    probability,
    said,
    typed_number,
    whole,
    whole_numbers,
)
from simulator.units import GIB

DEGREE_NAMES = ("tp", "pp", "ep", "dp")
SEQS, TOKENS, SHARE = "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization"
ProfileT = TypeVar("ProfileT")
Variant = tuple[Settings, tuple[str, ...]]  # one combination of settings, and of --set NAME=VALUE
Choice = Callable[[], Deployment]  # builds one deployment of a sweep, or raises InfercastError


@dataclass(frozen=True)
class DeploymentQuestion:
    """Which models on which devices under which engines; comma lists make every combination.

    Each field is an option of the command line, whose help explains it (`infercast estimate --help`). Empty or None
    leaves it to the checkpoint, the model or the engine's preset. The names of settings are those of `vllm serve`.
    `cpu_offload_gb` and `kv_offloading_size` are in GiB, `gpu_memory_utilization` is 0 to 1, `changes` are
    NAME=VALUE,.. under the engine's own names (`--set`).

    >>> [str(each) for each in DeploymentQuestion("qwen3-32b", "h100-sxm,h200-sxm", tp="2").deployments()]
    ['qwen3-32b (bf16) on 2 x h100-sxm', 'qwen3-32b (bf16) on 2 x h200-sxm']
    """

    model: str
    hardware: str
    engine: str = ""  # the device's usual one
    tp: str = "1"
    pp: str = "1"
    ep: str = "1"
    dp: str = "1"
    weight_dtype: str = ""
    cache_dtype: str = ""
    max_num_seqs: str = ""
    max_num_batched_tokens: str = ""
    max_model_len: int | None = None
    gpu_memory_utilization: str = ""
    num_gpu_blocks_override: int | None = None
    changes: Sequence[str] | None = None
    speculative_model: str = ""
    num_speculative_tokens: int | None = None
    acceptance_rate: str = ""
    cpu_offload_gb: float = 0.0
    gpu_layers: int | None = None
    kv_offloading_size: float = 0.0
    host: str = ""

    def deployment(self) -> Deployment:
        """Return the only deployment asked about.

        Raises InfercastError where a comma list gives several, and as `deployments` does.
        """
        if len(choices := self.choices()) != 1:
            raise InfercastError(f"{len(choices)} deployments", "one is asked about here", "Give no comma lists")
        return choices[0]()

    def deployments(self) -> list[Deployment]:
        """Return every combination, in the order of the lists.

        Raises ProfileError for a name that no profile has and InfercastError for the first combination that is
        impossible: a degree that does not divide the model, say, or a context longer than the model's.
        """
        return [each() for each in self.choices()]

    def each(self) -> list["DeploymentQuestion"]:
        """Return a question for every combination of the comma lists, each once.

        Raises ProfileError for a name that no profile has, InfercastError for an empty part.

        >>> [(one.hardware, one.tp) for one in DeploymentQuestion("qwen3-32b", "l40s,h100-sxm", tp="1,2").each()]
        [('l40s', '1'), ('l40s', '2'), ('h100-sxm', '1'), ('h100-sxm', '2')]
        """
        lists: dict[str, list[Any]] = {
            "model": _distinct(comma_list(self.model, "--model"), _checkpoint_file),
            "hardware": _distinct(comma_list(self.hardware, "--hardware"), _device_file),
            "engine": distinct_parts(self.engine, "--engine"),
            **{each: list(dict.fromkeys(comma_list(getattr(self, each), f"--{each}"))) for each in DEGREE_NAMES},
            "weight_dtype": distinct_parts(self.weight_dtype, "--weight-dtype"),
            "cache_dtype": distinct_parts(self.cache_dtype, "--cache-dtype"),
            "max_num_seqs": distinct_parts(self.max_num_seqs, SEQS),
            "max_num_batched_tokens": distinct_parts(self.max_num_batched_tokens, TOKENS),
            "gpu_memory_utilization": distinct_parts(self.gpu_memory_utilization, SHARE),
            "changes": list(dict.fromkeys(product(*(_values(each) for each in self.changes or ())))),
        }
        one = plain(DeploymentQuestion, self)
        return [replace(one, **dict(zip(lists, chosen, strict=True))) for chosen in product(*lists.values())]

    def choices(self) -> list[Choice]:
        """Return a function for every combination that builds it or raises, so that a sweep can skip impossible ones.

        Raises ProfileError at once for a name that no profile has, InfercastError for a list with an empty part.
        """
        found = []
        for one in self.each():
            with as_typed(said(one)):
                found.append(one._choice())
        return found

    def _choice(self) -> Choice:
        """Return what builds the deployment of a question without lists."""
        model, named = loaded(checkpoint, self.model)
        hardware = loaded(load_hardware, self.hardware)
        named_engine = loaded(load_engine, self.engine) if self.engine else None
        degrees = {each: whole_numbers(getattr(self, each), f"--{each}")[0] for each in DEGREE_NAMES}
        (variant,) = self.variants

        def build() -> Deployment:
            engine = named_engine or loaded(load_engine, usual_engine(hardware))
            dtypes = (self.weight_dtype or named, self.cache_dtype)
            with as_typed(said(self)):
                layout = running_layout(model, hardware, engine, dtypes=dtypes, **degrees)
                return configured(variant, model, hardware, engine, layout)

        return build

    def digests(self) -> Iterator[str]:
        """Yield the digests of the profiles that a question without lists names; another answer needs another one.

        A draft or a host may be any profile of the library. Raises ProfileError for a name that no profile has.
        """
        yield file_digest(loaded(checkpoint, self.model)[0].path)
        yield file_digest(loaded(load_hardware, self.hardware).path)
        if self.engine:
            yield file_digest(loaded(load_engine, self.engine).path)
        if self.host:
            yield file_digest(loaded(load_hardware, self.host).path)
        offloads = self.cpu_offload_gb or self.kv_offloading_size or self.gpu_layers is not None
        if offloads or self.host or self.speculative_model:
            yield library_digest()

    @property
    def variants(self) -> list[Variant]:
        """Every combination of the settings that were given. Raises InfercastError as `_settings` does."""
        return list(product(self._settings, product(*(_values(each) for each in self.changes or ()))))

    @property
    def _settings(self) -> list[Settings]:
        """Every combination of the engine settings that were given; None where the engine's own hold.

        Of `num_gpu_blocks_override` blocks vLLM keeps one as its null block (rule R5 of docs/vllm-rules.md).

        Raises InfercastError where only some of the three options of speculative decoding are given.
        """
        one = Settings(
            max_model_len=self.max_model_len,
            num_blocks=None if self.num_gpu_blocks_override is None else self.num_gpu_blocks_override - 1,
            speculation=self._speculation,
            offload=Offload(self.cpu_offload_gb * GIB, self.gpu_layers, self.kv_offloading_size * GIB, self.host),
        )
        sizes = [whole(each, SEQS) for each in distinct_parts(self.max_num_seqs, SEQS)]
        budgets = [whole(each, TOKENS) for each in distinct_parts(self.max_num_batched_tokens, TOKENS)]
        shares = [
            typed_number(each, SHARE, "0.9") if each else None
            for each in distinct_parts(self.gpu_memory_utilization, SHARE)
        ]
        return [
            replace(one, max_num_seqs=seqs, max_num_batched_tokens=tokens, memory_fraction=share)
            for seqs, tokens, share in product(sizes, budgets, shares)
        ]

    @property
    def _speculation(self) -> Speculation | None:
        parts = {
            "--speculative-model": self.speculative_model,
            "--num-speculative-tokens": self.num_speculative_tokens,
            "--acceptance-rate": self.acceptance_rate,
        }
        missing = [option for option, value in parts.items() if not value]
        if len(missing) == len(parts):
            return None
        if missing:
            because = "no default would be honest: it depends on the draft, the model and the text"
            raise InfercastError(f"speculation without {missing[0]}", because, f"Give {missing[0]}")
        rates = tuple(
            probability(each, "--acceptance-rate") for each in comma_list(self.acceptance_rate, "--acceptance-rate")
        )
        given = f"--acceptance-rate {self.acceptance_rate} with --num-speculative-tokens {self.num_speculative_tokens}"
        with named(given):
            return Speculation(self.speculative_model, self.num_speculative_tokens or 1, rates)


def configured(variant: Variant, model: Model, hardware: Hardware, engine: Engine, layout: Layout) -> Deployment:
    """Return a deployment with one combination of settings. Raises InfercastError where it is impossible."""
    settings, changes = variant
    engine, settings = configure(engine, settings, changes)
    return deployment_of(model, hardware, engine, layout, settings)


def _distinct(names: list[str], file_of: Callable[[str], object]) -> list[str]:
    """Return the names of different profiles, the first of each; a profile may have several."""
    found: dict[object, str] = {}
    for name in names:
        found.setdefault(file_of(name), name)
    return list(found.values())


def _checkpoint_file(name: str) -> tuple[object, str]:
    model, named = loaded(checkpoint, name)
    return model.path, named


def _device_file(name: str) -> object:
    return loaded(load_hardware, name).path


def _values(change: str) -> list[str]:
    """Return NAME=VALUE for each value of a setting. Raises InfercastError where a comma begins another setting.

    >>> _values("block_size=16,32")
    ['block_size=16', 'block_size=32']
    """
    name, equals, values = change.partition("=")
    if "=" in values:
        raise InfercastError(f"--set {change}", "a comma is between values of one setting", "Give --set once for each")
    return [f"{name}={each}" for each in comma_list(values, f"--set {name}=")] if equals and values else [change]


def loaded(load: Callable[[str], ProfileT], name: str) -> ProfileT:
    """Load a profile; shipped ones are cached, because thousands of measurements share a few."""
    is_own = name.endswith((".yaml", ".yml")) or bool(os.environ.get("INFERCAST_PROFILES"))
    return load(name) if is_own else _shipped(load, name)


@cache
def _shipped(load: Callable[[str], Any], name: str) -> Any:
    return load(name)
