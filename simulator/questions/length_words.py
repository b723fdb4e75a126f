"""Length distributions as text: 512, uniform:256:1024, lognormal:512:0.8, ended:180:256, quantiles:0=10,0.5=90,1=400.

All lengths are in tokens.
"""

from collections.abc import Callable
from functools import partial

from pydantic import ValidationError

from simulator.errors import WorkloadError
from simulator.questions.words import distinct_parts, example, named, typed_number
from simulator.workloads.lengths import Distribution, Ended, Fixed, LogNormal, Quantiles, Uniform


def distribution(text: str, ratio: float, option: str, spread: Callable[[int, float], Distribution]) -> Distribution:
    """Return the distribution that a text names, for prompts or outputs; `option` is the flag that errors name.

    A plain number is spread by `ratio` > 0 with `spread`, the load generator's meaning of --random-range-ratio.

    Raises WorkloadError for a text that names no distribution, for lengths that are impossible, and for a ratio beside
    a distribution that already has a spread; InfercastError for a parameter that is not a number.

    >>> distribution("lognormal:512:0.8", 0.0, "--isl", Uniform.around)
    LogNormal(mean_tokens=512.0, cv=0.8, max_tokens=2147483647)
    """
    kind, *given = text.split(":")
    if given and ratio:
        given_ = f"--random-range-ratio with {option} {text}"
        raise WorkloadError(given_, "its lengths have a spread of their own", "Give one")
    with named(f"{option} {text}"):
        found = _of_kind(kind, given, option)
    if isinstance(found, Fixed) and ratio:
        return spread(found.tokens, ratio)
    if found:
        return found
    remedy = (
        f"Write {option} 512, uniform:256:1024, lognormal:512:0.8 (mean, deviation over mean, and a maximum), "
        "ended:180:256 (mean, and max_tokens) or quantiles:0=10,0.5=90,1=400"
    )
    raise WorkloadError(f"{option} {text}", "it names no lengths", remedy)


def _of_kind(kind: str, given: list[str], option: str) -> Distribution | None:
    """Return the distribution of a kind with the parameters that were given, None for no such kind."""
    tokens = partial(_tokens, option=option)
    if not given:
        return Fixed(tokens(kind))
    if kind == "uniform" and len(given) == 2:
        return Uniform(*map(tokens, given))
    if kind == "lognormal" and len(given) in (2, 3):
        return LogNormal(typed_number(given[0], option), typed_number(given[1], option), *map(tokens, given[2:]))
    if kind == "ended" and len(given) == 2:
        return Ended(typed_number(given[0], option), tokens(given[1]))
    if kind == "quantiles" and len(given) == 1:
        return _quantiles(given[0], option)
    return None


def length_list(text: str, option: str) -> list[str]:
    """Return the texts of a comma list of lengths; the commas inside of quantiles are no ends.

    >>> length_list("512,quantiles:0=1,1=9,uniform:1:9", "--isl")
    ['512', 'quantiles:0=1,1=9', 'uniform:1:9']
    """
    found = list[str]()
    for part in distinct_parts(text, option):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def in_words(lengths: Distribution) -> str:
    """Return the text from which `distribution` makes these lengths. Raises WorkloadError where there is none.

    >>> in_words(Quantiles(levels=(0.0, 0.5, 1.0), tokens=(10, 90, 400))), in_words(Fixed(512))
    ('quantiles:0.0=10,0.5=90,1.0=400', '512')
    """
    match lengths:
        case Fixed():
            return str(lengths.tokens)
        case Uniform():
            return f"uniform:{lengths.low_tokens}:{lengths.high_tokens}"
        case LogNormal():
            return f"lognormal:{lengths.mean_tokens!r}:{lengths.cv!r}:{lengths.max_tokens}"
        case Ended():
            return f"ended:{lengths.mean_tokens!r}:{lengths.max_tokens}"
        case Quantiles():
            pairs = zip(lengths.levels, lengths.tokens, strict=True)
            return "quantiles:" + ",".join(f"{level!r}={tokens}" for level, tokens in pairs)
    raise WorkloadError(f"{lengths!r}", "no words name such lengths", "Write them as quantiles")


def _quantiles(text: str, option: str) -> Quantiles:
    pairs = [each.partition("=") for each in text.split(",")]
    levels = tuple(typed_number(level, option) for level, _, _ in pairs)
    counts = tuple(_tokens(tokens, option) for _, _, tokens in pairs)
    try:
        return Quantiles(levels=levels, tokens=counts)
    except ValidationError as error:
        because = "levels rise from 0 to 1, and tokens from 1 on do not fall"
        remedy = f"Write, say, {option} quantiles:0=10,0.5=90,1=400"
        raise WorkloadError(f"{option} quantiles:{text}", because, remedy) from error


def _tokens(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        because = "it is not a whole number of tokens"
        raise WorkloadError(f"{option} {text!r}", because, example(text, option)) from None
