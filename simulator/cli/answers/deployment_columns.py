"""What the deployments of an answer share, for its title; what tells them apart, as columns; what they rest on."""

from collections.abc import Callable, Collection, Iterable, Sequence

from simulator.cli.output import Column, Row, View
from simulator.deployment.deployment import Deployment
from simulator.questions.identity import identity
from simulator.reports.provenance import Provenance, figures_behind

IDENTITY = (
    Column("model", "model", left=True),
    Column("hardware", "hardware", left=True),
    Column("engine", "engine", left=True),
    Column("tp", "TP"),
    Column("pp", "PP"),
    Column("ep", "EP"),
    Column("dp", "DP"),
    Column("weight_dtype", "weights", left=True),
    Column("cache_dtype", "cache", left=True),
)


SETTINGS = (  # that a user gave: columns where they vary, never part of a title
    Column("max_num_seqs", "max seqs"),
    Column("max_num_batched_tokens", "max tokens"),
    Column("gpu_memory_utilization", "GPU memory"),
)


def common(rows: Sequence[Row]) -> tuple[str, list[Column]]:
    """Return what the deployments of all rows share, as text for a title, and columns for what varies among them."""
    varying = [each for each in IDENTITY if len({row[each.key] for row in rows}) > 1]
    degrees = ("tp", "pp", "ep", "dp")
    form = {"weight_dtype": "{} weights", "cache_dtype": "{} cache", **{name: name.upper() + " {}" for name in degrees}}
    words = [
        form.get(each.key, "{}").format(rows[0][each.key])
        for each in IDENTITY
        if each not in varying and not (each.key in degrees and rows[0][each.key] == 1)
    ]
    settings = [each for each in SETTINGS if len({row[each.key] for row in rows}) > 1]
    return ", ".join(words), [*varying, *settings, *_other_settings(rows, {each.key for each in settings})]


def _other_settings(rows: Sequence[Row], told: Collection[str]) -> list[Column]:
    """Return the column of changed settings, without what all rows share and what is `told` by its own column."""
    words = [set((row["settings"] or "").split()) for row in rows]
    known = set.intersection(*words).union(word for each in words for word in each if word.split("=")[0] in told)
    kept = lambda text: " ".join(word for word in text.split() if word not in known) or "-"  # noqa: E731
    return [Column("settings", "settings", kept, left=True)] if set.union(*words) - known else []


def side_by_side(what: str, rows: Sequence[Row], columns: Sequence[Column], asked: Sequence[Row] = ()) -> View:
    """Return a table in which each row is a column, headed by what varies among the deployments.

    `asked`: their identity, where `rows` hold under the same keys what the engine makes of it.
    """
    title, varying = common(asked or rows)
    heads = ["\n".join(_named_cells(varying, row)) for row in asked or rows]
    named = [{**row, "name": head} for row, head in zip(rows, heads, strict=True)]
    return View(f"{what}: {title}", (Column("name", ""), *columns), named, upright=True)


def labels_of(deployments: Sequence[Deployment], known: Collection[str] = ()) -> list[str]:
    """Return what tells deployments apart, in a few words each, but for what is `known` (keys of `identity`)."""
    rows = [identity(each) for each in deployments]
    varying = [each for each in common(rows)[1] if each.key not in known]
    return [label(varying, row) for row in rows]


def label(columns: Iterable[Column], row: Row) -> str:
    """Return the cells of a row in a line: words as they are, numbers behind their heading."""
    return " ".join(_named_cells(columns, row))


def _named_cells(columns: Iterable[Column], row: Row) -> list[str]:
    return [each.cell(row) if each.left else f"{each.heading} {each.cell(row)}" for each in columns]


def evidence(
    deployments: Iterable[Deployment], of: Callable[[Deployment], Iterable[Provenance]] = figures_behind
) -> list[Provenance]:
    """Return the figures on which the answers for some deployments rest (`of` each), without repetition."""
    return list(dict.fromkeys(each for deployment in deployments for each in of(deployment)))
