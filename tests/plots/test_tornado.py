"""The tornado plot: its words can be read."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simulator.cost.sensitivity import Knob, KnobEnd
from simulator.plots.tornado import plot_tornado


def knob(name: str, low: tuple[str, float | None], high: tuple[str, float | None]) -> Knob:
    return Knob(name, KnobEnd(*low, None, None), KnobEnd(*high, None, None), is_known=True)


@pytest.mark.parametrize("most", [1.2, 30.0])
def test_words_at_the_ends_of_bars_do_not_cover_the_names_of_the_knobs(most):
    """An end that costs next to nothing beside the dearest has its words left of its bar."""
    knobs = [
        knob("step times", ("0.87 x", 0.85), ("1.32 x", most)),
        knob("TTFT bound", ("625 ms", 0.85), ("4 ms", None)),
    ]
    figure = plot_tornado(knobs, 1.0, "title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    names = [each.get_window_extent(canvas.get_renderer()) for each in axes.get_yticklabels()]
    words = [each.get_window_extent(canvas.get_renderer()) for each in axes.texts if each.get_text().strip()]
    assert len(words) == 4
    assert min(each.x0 for each in words) >= max(each.x1 for each in names)
    assert all(tick >= 0 for tick in axes.get_xticks())


def test_both_ends_on_one_side_have_their_words_beside_the_bar():
    """The end that costs the same, but at which another answer is best, has its word left of the bar, not on it."""
    knobs = [
        Knob("rate", KnobEnd("2/s", 1.0, 1, 0.5), KnobEnd("10/s", 2.0, 0, 2.0), is_known=True),
        Knob("TTFT bound", KnobEnd("400 ms", 1.0, 0, 1.0), KnobEnd("625 ms", 1.0, 0, 1.0), is_known=True),
    ]
    (axes,) = plot_tornado(knobs, 1.0, "title").axes
    said = {each.get_text().strip(): each for each in axes.texts}
    assert list(said) == ["2/s*", "10/s", "no change"]
    assert (said["2/s*"].get_ha(), said["10/s"].get_ha()) == ("right", "left")
