"""Engine settings that a user may choose; checked when they are made."""

from dataclasses import dataclass

from simulator.deployment.offload import NO_OFFLOAD, Offload
from simulator.deployment.speculation import Speculation
from simulator.errors import InfercastError, Setting
from simulator.limits import is_whole


@dataclass(frozen=True, slots=True)
class Settings:
    """Engine settings that a user may choose, under vLLM's names; None is the engine's default on the device.

    `max_num_seqs` and `max_num_batched_tokens` are of one data-parallel rank, as in vLLM; `changes` are the NAME=VALUE
    of --set. Raises InfercastError for a count below 1 and a `memory_fraction` outside of (0, 1].

    >>> Settings(memory_fraction=90)
    Traceback (most recent call last):
    ...
    simulator.errors.InfercastError: memory_fraction 90: it is a share above 0 and up to 1. Give, say, 0.9.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    memory_fraction: float | None = None
    num_blocks: int | None = None
    speculation: Speculation | None = None
    offload: Offload = NO_OFFLOAD
    threads: int | None = None  # of a CPU; None: one for each of its cores
    identical_prompts: bool = False  # all requests of a batch are the same text: the router picks the same experts
    sorted_sampling: bool = False  # requests ask for top-k or top-p, for which the sampler sorts the vocabulary
    ignore_eos: bool = False  # requests produce all tokens that they ask for, and the engine knows it (SGLang)
    stream: bool = True  # clients receive each token as it is generated
    first_call_s: float = 0.0  # seconds that an engine's first step takes longer, where nothing warmed it up
    language_model_only: bool = False  # a multimodal checkpoint's vision encoder is not loaded
    flashinfer_sampler: bool = False  # FlashInfer samples with top-k and top-p, where the engine's own sampler sorts
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_blocks", "threads"):
            value = getattr(self, name)
            if value is not None and (not is_whole(value) or value < 1):
                because = "it is a whole number of at least 1"
                raise InfercastError(Setting(name, value), because, "Give another, or leave it out")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            given = Setting("memory_fraction", self.memory_fraction)
            raise InfercastError(given, "it is a share above 0 and up to 1", "Give, say, 0.9")
        if isinstance(self.changes, str):
            raise InfercastError(Setting("changes", self.changes), "they are several", f"Give ({self.changes!r},)")
