"""Errors of predictions by metric, regime and more, averaged by group, and the rows without a prediction."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.frames import Framed, frame
from simulator.limits import known
from simulator.reports.interval_widths import is_rate
from simulator.reports.intervals import refuse_level
from simulator.validation.measurements import Measurement, read_measurements, read_published
from simulator.validation.prediction import Prediction, predict

if TYPE_CHECKING:
    import pandas as pd

GRADES = ("A", "B")  # of measurements that the accuracy of this project is told by
LIGHT_MARGIN = 0.03  # by which a measurement may beat the speed of light
Key = Callable[[Measurement], str]
KEYS: dict[str, Key] = {
    "metric": lambda row: row.metric,
    "regime": lambda row: row.setup.regime or "not stated",
    "engine": lambda row: row.setup.engine,
    "device class": lambda row: row.setup.hardware_class,
    "device": lambda row: row.setup.hardware,
    "model": lambda row: row.setup.model,
    "source": lambda row: row.setup.source,
}


class Score(NamedTuple):
    """Errors of some predictions, as shares of the measured value.

    A group is one (source, device, model), so that large sources do not dominate. `median_ape` and `p90_ape`: quantiles
    over groups of the group's mean |error|; `bias`: median over groups of the mean signed error; `interval_coverage`:
    mean over groups of the share of measurements inside their interval, NaN without intervals. `row_...`: the same over
    rows.
    """

    rows: int
    groups: int
    median_ape: float
    p90_ape: float
    bias: float
    interval_coverage: float
    row_median_ape: float
    row_p90_ape: float
    row_bias: float

    def figures(self) -> dict[str, float | None]:
        """Return all by name, None for what is not known."""
        return {name: known(value) for name, value in self._asdict().items()}


@dataclass(frozen=True, repr=False)
class Validation(Framed):
    """Predictions of measurements; what `infercast validate` shows."""

    predictions: Sequence[Prediction]

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each measurement: id, setup, measured, predicted, interval, error, or why there is none."""
        return frame(map(as_row, self.predictions))

    def score(self, *keys: str) -> "pd.DataFrame":
        """Return the errors by some of `KEYS`, metric and regime by default; columns are those of `Score`."""
        names = keys or ("metric", "regime")
        found = by(self.predictions, *names).items()
        return frame((dict(zip(names, of, strict=True)) | each._asdict() for of, each in found), *names)


def validate(path: str | Path | None = None, *, level: float = 0.8) -> Validation:
    r"""Predict every measurement of a file, or every published one; `level`: share of measurements that intervals hold.

    Raises ProfileError for a file that cannot be read, InfercastError for a level above 0.95. A row that is not
    modelled has no prediction but a reason.

    >>> from tempfile import TemporaryDirectory
    >>> from simulator.files import write_whole
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "measured.csv")
    ...     row = "h100-sxm,llama-3.1-8b,vllm,fixed_batch,1,1024,128,tpot_ms,7.1"
    ...     lines = ["hardware,model,engine,regime,batch,input_len,output_len,metric,value", row]
    ...     write_whole(path, "\n".join(lines))
    ...     found = validate(path).to_frame()
    >>> found["measured"].tolist(), bool(abs(found["error"][0]) < 0.3)
    ([7.1], True)
    """
    refuse_level(level)
    return Validation(predict(read_measurements(Path(path)) if path else read_published(), level=level))


def as_row(each: Prediction) -> dict[str, Any]:
    """Return a prediction as a row of `infercast validate --format csv`; None for what it does not have."""
    row, setup = each.measurement, each.measurement.setup
    return {
        **{"id": row.id, "source": setup.source, "hardware": setup.hardware, "model": setup.model},
        **{"engine": setup.engine, "regime": setup.regime or "", "metric": row.metric, "stat": row.stat},
        **{"quality": row.quality, "measured": None if setup.flaw else row.value, "predicted": each.value},
        **{"low": each.low, "high": each.high, "light": each.light},
        **{"error": None if each.value is None else each.error, "reason": each.reason},
    }


def score(predictions: Iterable[Prediction]) -> Score:
    """Return the errors of the rows with a prediction; NaN where there is none."""
    groups: dict[tuple[str, str, str], list[Prediction]] = defaultdict(list)
    for each in predictions:
        if each.value is not None:
            groups[each.measurement.group].append(each)
    if not groups:
        return Score(0, 0, *(float("nan"),) * 7)
    errors = [np.array([each.error for each in some]) for some in groups.values()]
    means = np.array([np.abs(each).mean() for each in errors])
    rows = np.concatenate(errors)
    return Score(
        rows=len(rows),
        groups=len(groups),
        median_ape=float(np.median(means)),
        p90_ape=float(np.quantile(means, 0.9)),
        bias=float(np.median([each.mean() for each in errors])),
        interval_coverage=_coverage(groups.values()),
        row_median_ape=float(np.median(np.abs(rows))),
        row_p90_ape=float(np.quantile(np.abs(rows), 0.9)),
        row_bias=float(np.median(rows)),
    )


def _coverage(groups: Iterable[Sequence[Prediction]]) -> float:
    """Return the mean over groups of the share of measurements inside their interval; NaN without intervals."""
    shares = [share for some in groups if not math.isnan(share := row_coverage(some))]
    return float(np.mean(shares)) if shares else float("nan")


def row_coverage(predictions: Iterable[Prediction]) -> float:
    """Return the share of measurements inside their interval, whatever their group; NaN without intervals."""
    inside = [
        each.low <= each.measurement.value <= (math.inf if each.high is None else each.high)
        for each in predictions
        if each.low is not None
    ]
    return float(np.mean(inside)) if inside else float("nan")


def scored(predictions: Iterable[Prediction], grades: Sequence[str]) -> list[Prediction]:
    """Return the predictions whose measurement has one of the quality grades, or none."""
    return [each for each in predictions if each.measurement.quality in (*grades, "")]


def by(predictions: Sequence[Prediction], *keys: str) -> dict[tuple[str, ...], Score]:
    """Return the score of each combination of keys (names in `KEYS`), the most rows first."""
    parts: dict[tuple[str, ...], list[Prediction]] = defaultdict(list)
    for each in predictions:
        if each.value is not None:
            parts[tuple(KEYS[key](each.measurement) for key in keys)].append(each)
    return {key: score(some) for key, some in sorted(parts.items(), key=lambda item: (-len(item[1]), item[0]))}


def not_covered(predictions: Iterable[Prediction]) -> dict[str, int]:
    """Return the number of rows without a prediction by reason, the most frequent first."""
    return dict(Counter(each.reason for each in predictions if each.value is None).most_common())


def beating_light(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return the measurements that beat the speed of light by more than LIGHT_MARGIN: one of the two is wrong."""
    return [each for each in predictions if each.light is not None and _better(each) > 1 + LIGHT_MARGIN]


def _better(each: Prediction) -> float:
    """Return how many times as good a measurement is as the speed of light: rates over it, times under it."""
    assert each.light is not None  # noqa: S101  the caller has filtered
    ratio = each.measurement.value / each.light
    return ratio if is_rate(each.measurement.metric) else 1 / ratio


def sections(predictions: Sequence[Prediction], grades: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what `infercast validate --format json` prints: rows by section; errors are shares, averaged by group."""
    kept = scored(predictions, grades)
    found = sorted(by(kept, "metric", "regime").items())
    predicted = sum(each.value is not None for each in predictions)
    return {
        "summary": [{"rows": len(predictions), "rows_predicted": predicted}],
        "errors": [{"metric": metric, "regime": regime, **one.figures()} for (metric, regime), one in found],
        "not_covered": [{"reason": reason, "rows": rows} for reason, rows in not_covered(predictions).items()],
        "faster_than_light": [_light(each) for each in beating_light(kept)],
        "measurements": [as_row(each) for each in predictions],
    }


def _light(each: Prediction) -> dict[str, Any]:
    row = each.measurement
    return {"id": row.id, "metric": row.metric, "measured": row.value, "light": each.light, "by": _better(each) - 1}
