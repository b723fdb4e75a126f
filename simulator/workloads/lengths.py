"""Lengths of prompts and outputs in tokens: fixed, uniform, log-normal, from a table, or from a trace."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.arrays import Floats, Ints
from simulator.errors import ProfileError, Setting, WorkloadError
from simulator.limits import is_whole
from simulator.profile import Strict

PRECISION = 1e-12  # relative width at which a bisection ends
MAX_TOKENS = 2**31 - 1  # far above any context, low enough that sums over requests stay exact


class Distribution(Protocol):
    """Distribution of the lengths of one side, prompt or output: whole numbers of tokens, at least 1."""

    def draw(self, count: int, rng: Generator) -> Ints:
        """Return `count` lengths, shape (count,), int64; the first n do not depend on `count`."""
        ...


class Lengths(Protocol):
    """Distribution of both lengths, each with its own random stream: changing one leaves the other unchanged."""

    def draw(self, count: int, prompt_rng: Generator, output_rng: Generator) -> tuple[Ints, Ints]:
        """Return `count` prompt lengths and `count` output lengths, of shape (count,) each, int64."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request has the same length (`--isl`, `--osl`). Raises WorkloadError unless it is from 1 to MAX_TOKENS.

    >>> Fixed(512).draw(3, np.random.default_rng(0))
    array([512, 512, 512])
    """

    tokens: int

    def __post_init__(self) -> None:
        _check_tokens("length", self.tokens)

    def draw(self, count: int, _rng: Generator) -> Ints:
        """Return the length `count` times, shape (count,), int64."""
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number from `low_tokens` to `high_tokens` is equally likely, both ends included.

    Raises WorkloadError for ends outside of 1 to MAX_TOKENS or in the wrong order.
    """

    low_tokens: int
    high_tokens: int

    def __post_init__(self) -> None:
        _check_tokens("low", self.low_tokens)
        _check_tokens("high", self.high_tokens)
        if self.low_tokens > self.high_tokens:
            given = f"lengths from {self.low_tokens} to {self.high_tokens}"
            raise WorkloadError(given, "the low end is above the high end", "Swap them")

    @classmethod
    def around(cls, nominal_tokens: int, range_ratio: float) -> Self:
        """Return lengths around a nominal one, as vLLM's random dataset has them (`--random-range-ratio`, 0 <= r < 1).

        From floor(nominal (1 - r)) to ceil(nominal (1 + r)), at least 1. InferenceMAX's ratio means [r nominal,
        nominal]: write those two ends as `Uniform(low, high)`. Source: vLLM `RandomDataset.get_sampling_params`.

        Raises WorkloadError for another ratio or length.

        >>> Uniform.around(1024, 0.1)
        Uniform(low_tokens=921, high_tokens=1127)
        """
        _check_tokens("length", nominal_tokens)
        if not 0 <= range_ratio < 1:
            because = "it is not within 0 <= r < 1"
            raise WorkloadError(Setting("range_ratio", range_ratio), because, "Give 0.2 for ±20 %")
        low, high = math.floor(nominal_tokens * (1 - range_ratio)), math.ceil(nominal_tokens * (1 + range_ratio))
        return cls(max(low, 1), high)

    def draw(self, count: int, rng: Generator) -> Ints:
        """Return `count` independent lengths, shape (count,), int64."""
        return rng.integers(self.low_tokens, self.high_tokens, size=count, endpoint=True)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal lengths, given by their mean in tokens and coefficient of variation (standard deviation / mean).

    sigma² = ln(1 + cv²), mu = ln(mean) - sigma²/2; rounded, at least 1, at most `max_tokens` (which lowers the mean).
    Raises WorkloadError for a mean, a variation or a maximum that is impossible.

    >>> round(float(LogNormal(512, 0.8).draw(100_000, np.random.default_rng(0)).mean()))
    512
    """

    mean_tokens: float
    cv: float
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        _check_mean(self.mean_tokens, self.max_tokens)
        if not 0 <= self.cv < math.inf:
            raise WorkloadError(f"coefficient of variation {self.cv}", "it is not finite and >= 0", "Give, say, 1.2")

    def draw(self, count: int, rng: Generator) -> Ints:
        """Return `count` independent lengths, shape (count,), int64."""
        variance = math.log1p(self.cv**2)
        normal = math.log(self.mean_tokens) - variance / 2 + math.sqrt(variance) * rng.standard_normal(count)
        return _whole(np.exp(np.minimum(normal, math.log(self.max_tokens))))


@dataclass(frozen=True, slots=True)
class Ended:
    """Output lengths of answers that end after each token with the same probability, and at `max_tokens` otherwise.

    mean / max = (1 - e^-x) / x, where e^-x is the share of answers that reach the maximum: the mean of an exponential
    distribution with rate x / max, cut at max. Raises WorkloadError for an impossible mean or maximum.

    >>> lengths = Ended(389.1, 512).draw(100_000, np.random.default_rng(0))
    >>> round(float((lengths == 512).mean()), 2)
    0.56
    """

    mean_tokens: float
    max_tokens: int

    def __post_init__(self) -> None:
        _check_mean(self.mean_tokens, self.max_tokens)

    def draw(self, count: int, rng: Generator) -> Ints:
        """Return `count` independent lengths, shape (count,), int64."""
        lengths = rng.exponential(self.max_tokens / self._endings, count) if self._endings else np.full(count, np.inf)
        return _whole(np.minimum(lengths, self.max_tokens))

    @property
    def _endings(self) -> float:
        """Solution x of the equation for the mean, by bisection."""
        share, low, high = self.mean_tokens / self.max_tokens, 0.0, 2.0 * self.max_tokens
        while high - low > PRECISION * high:
            middle = (low + high) / 2
            low, high = (middle, high) if -math.expm1(-middle) > share * middle else (low, middle)
        return low


class Quantiles(Strict):
    """A measured distribution as a table of its quantiles, with straight lines in between.

    `tokens[i]` is the length that a share `levels[i]` of the requests does not exceed. Two levels with the same length
    give that length a probability of its own, so any histogram can be written this way. Raises ProfileError for lists
    of different sizes, levels that do not rise from 0 to 1, and lengths that fall or lie outside of 1 to MAX_TOKENS.
    """

    levels: tuple[float, ...]
    tokens: tuple[int, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        levels, tokens = self.levels, self.tokens
        if len(levels) != len(tokens) or len(levels) < 2 or (levels[0], levels[-1]) != (0, 1):
            because = "they are not two lists of one size, with levels from 0 to 1"
            raise ProfileError("levels and tokens", because, "Write, say, levels [0, 0.5, 1] and tokens [10, 90, 400]")
        if not all(low < high for low, high in pairwise(levels)):
            raise ProfileError(f"levels {list(levels)}", "they do not rise", "Sort them")
        if not all(low <= high for low, high in pairwise(tokens)) or not 1 <= tokens[0] <= tokens[-1] <= MAX_TOKENS:
            raise ProfileError(
                f"tokens {list(tokens)}", f"they fall, or leave 1 to {MAX_TOKENS}", "Write, say, [10, 90, 400]"
            )
        return self

    def at(self, level: Floats | Sequence[float]) -> Ints:
        """Return the quantile at each level, an int64 array of the same shape.

        >>> Quantiles(levels=(0, 0.5, 1), tokens=(1, 101, 1101)).at([0.25, 0.5, 0.9])
        array([ 51, 101, 901])
        """
        return _whole(np.interp(level, self.levels, self.tokens))

    def draw(self, count: int, rng: Generator) -> Ints:
        """Return `count` independent lengths, shape (count,), int64."""
        return self.at(rng.random(count))


@dataclass(frozen=True, slots=True)
class Independent:
    """Prompt and output lengths that are drawn independently of each other.

    >>> Independent(Fixed(512), Fixed(128)).draw(2, np.random.default_rng(0), np.random.default_rng(1))
    (array([512, 512]), array([128, 128]))
    """

    prompt: Distribution
    output: Distribution

    def draw(self, count: int, prompt_rng: Generator, output_rng: Generator) -> tuple[Ints, Ints]:
        """Return `count` prompt and `count` output lengths, of shape (count,) each, int64."""
        return self.prompt.draw(count, prompt_rng), self.output.draw(count, output_rng)


class Banded(Strict):
    """Output lengths that depend on the prompt's: one table per band of prompts, from shortest to longest.

    With k tables, the first has the outputs of the shortest 1/k of the prompts, and so on. Outputs are cut so that a
    request has at most `max_total_tokens` tokens, the context at which the trace was cut. Raises ProfileError if that
    leaves the longest prompt no output.
    """

    prompt: Quantiles
    output_by_prompt_band: tuple[Quantiles, ...] = Field(min_length=1)
    max_total_tokens: int = MAX_TOKENS

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_total_tokens <= self.prompt.tokens[-1]:
            given, least = f"max_total_tokens {self.max_total_tokens}", self.prompt.tokens[-1]
            raise ProfileError(given, "it leaves the longest prompt no output", f"Give more than {least}")
        return self

    def draw(self, count: int, prompt_rng: Generator, output_rng: Generator) -> tuple[Ints, Ints]:
        """Return `count` prompt and output lengths, shape (count,) each, int64: outputs by their prompts' bands."""
        prompt_level, output_level = prompt_rng.random(count), output_rng.random(count)
        band = (prompt_level * len(self.output_by_prompt_band)).astype(np.int64)
        output_tokens = np.empty(count, dtype=np.int64)
        for index, table in enumerate(self.output_by_prompt_band):
            inside = band == index
            output_tokens[inside] = table.at(output_level[inside])
        prompt_tokens = self.prompt.at(prompt_level)
        return prompt_tokens, np.minimum(output_tokens, self.max_total_tokens - prompt_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The lengths of a trace, in its order; both of shape (recorded,), int64."""

    prompt_tokens: Ints
    output_tokens: Ints

    def draw(self, count: int, _prompt_rng: Generator, _output_rng: Generator) -> tuple[Ints, Ints]:
        """Return the first `count` lengths of both sides. Raises WorkloadError if the trace has fewer.

        Each has shape (count,), int64.
        """
        require_recorded(count, len(self.prompt_tokens))
        return self.prompt_tokens[:count], self.output_tokens[:count]


def require_recorded(count: int, recorded: int) -> None:
    """Raise WorkloadError if more requests are asked for than a trace has."""
    if count > recorded:
        raise WorkloadError(f"{count:,} requests", f"the trace has {recorded:,}", f"Ask for at most {recorded:,}")


def _check_tokens(what: str, tokens: int) -> None:
    if not is_whole(tokens) or not 1 <= tokens <= MAX_TOKENS:
        because = f"it is not a whole number from 1 to {MAX_TOKENS}"
        raise WorkloadError(f"{what} {tokens}", because, "Give a count of tokens")


def _check_mean(mean_tokens: float, max_tokens: int) -> None:
    """Raise WorkloadError for a longest length that is none, and a mean beyond it."""
    _check_tokens("longest length", max_tokens)
    if not 1 <= mean_tokens <= max_tokens:
        because = f"it is not between 1 and {max_tokens} tokens"
        raise WorkloadError(f"mean_tokens {mean_tokens:g}", because, f"Give a mean from 1 to {max_tokens}")


def _whole(tokens: NDArray[np.floating[Any]]) -> Ints:
    whole: Ints = np.maximum(np.rint(tokens), 1).astype(np.int64)
    return whole


@dataclass(frozen=True)
class Stretched:
    """Lengths so many times as long: each prompt times `prompt`, each output times `output`, in whole tokens.

    Raises WorkloadError for a factor that is not above 0.

    >>> rng = np.random.default_rng(0)
    >>> [each.tolist() for each in Stretched(Independent(Fixed(100), Fixed(10)), 1.25, 0.5).draw(2, rng, rng)]
    [[125, 125], [5, 5]]
    """

    lengths: Lengths
    prompt: float
    output: float

    def __post_init__(self) -> None:
        if not min(self.prompt, self.output) > 0:
            given = f"lengths times {self.prompt:g} and {self.output:g}"
            raise WorkloadError(given, "a factor on lengths is above 0", "Give, say, 1.25")

    def draw(self, count: int, prompt_rng: Generator, output_rng: Generator) -> tuple[Ints, Ints]:
        """Return `count` prompt lengths and `count` output lengths, of shape (count,) each, int64."""
        prompts, outputs = self.lengths.draw(count, prompt_rng, output_rng)
        return _whole(prompts * self.prompt), _whole(outputs * self.output)
