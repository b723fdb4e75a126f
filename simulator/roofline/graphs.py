"""What launches a step: one CUDA graph, piecewise graphs, or the host, kernel by kernel; and rows that fill it up."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.arrays import Array
from simulator.models.operations import Counts

EVERY_STEP = 2**62  # tokens that no step has: one graph launches every step of decodes alone


class HostLaunch(NamedTuple):
    """The host's seconds to launch a step, which lasts no less, by what launches it; one whole graph takes no time.

    `least_s`: kernel by kernel, without a graph. `piecewise_s`: piecewise graphs, and what splits them. `gaps_s`: by
    how much the device takes longer in such graphs, not the host.
    """

    least_s: float = 0.0
    piecewise_s: float = 0.0
    gaps_s: float = 0.0


class Launches(NamedTuple):
    """What launches steps with prompts, and steps of decodes alone.

    `sequence_s`: what the host takes beside that for each sequence that gets a token (Engine.hides_sequences).
    """

    prompts: HostLaunch = HostLaunch()
    decodes: HostLaunch = HostLaunch()
    sequence_s: float = 0.0


class Graphs(NamedTuple):
    """Which steps graphs launch, by their tokens; by default one graph all steps of decodes alone, and none prompts.

    `tokens`: of a step with prompts that piecewise graphs launch, at most. `decode_tokens`: of a step of decodes alone
    that one graph launches; `decode_piecewise_tokens`: and that piecewise ones launch. `routed_sizes`: to which
    steps are filled up, with rows that choose experts, too. `batch_sizes`: of the steps of decodes alone that graphs
    launch, and no others; `padding`: to the next of which they are filled up, with rows that are computed as all are.
    """

    tokens: int = 0
    decode_tokens: int = EVERY_STEP
    decode_piecewise_tokens: int = 0
    routed_sizes: tuple[int, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    padding: bool = False

    def launched(self, launches: Launches, counts: Counts) -> tuple[Array, Array]:
        """Return by how much piecewise graphs prolong a step, and how long the host takes for it beside devices."""
        prompts = np.greater(counts.prefill_tokens, 0)
        captured = np.less_equal(counts.tokens, self.decode_tokens) & self._is_captured(counts.tokens)
        whole = ~prompts & captured
        piecewise = ~whole & (counts.tokens <= np.where(prompts, self.tokens, self.decode_piecewise_tokens))
        either = zip(launches.prompts, launches.decodes, strict=True)
        least_s, piecewise_s, gaps_s = (np.where(prompts, *each) for each in either)
        launch_s = np.where(whole, 0.0, np.where(piecewise, piecewise_s, least_s))
        return np.where(piecewise, gaps_s, 0.0), launch_s + launches.sequence_s * counts.logits

    def filled(self, counts: Counts) -> Counts:
        """Return counts with the rows that fill steps of decodes alone up to a captured size, and their logits."""
        if not self.padding or not self.batch_sizes:
            return counts
        prompts = np.greater(counts.prefill_tokens, 0)
        filled = np.where(prompts, counts.tokens, _filled_up(counts.tokens, self.batch_sizes))
        return counts._replace(tokens=filled, logits=counts.logits + filled - counts.tokens)

    def routed(self, counts: Counts) -> Counts:
        """Return counts with the rows that choose experts though they only fill a step up."""
        return counts._replace(tokens=_filled_up(counts.tokens, self.routed_sizes)) if self.routed_sizes else counts

    def _is_captured(self, tokens: Array) -> npt.NDArray[np.bool_]:
        """Whether one graph launches decodes of so many tokens, filled up; always where no sizes are listed."""
        if not self.batch_sizes:
            return np.ones(np.shape(tokens), np.bool_)
        return np.isin(_filled_up(tokens, self.batch_sizes) if self.padding else tokens, self.batch_sizes)


NO_LAUNCHES, ONE_GRAPH = Launches(), Graphs()


def _filled_up(tokens: Array, listed: tuple[int, ...]) -> Array:
    """Return tokens rounded up to the next of the sizes; as they are where there are none, or no larger."""
    sizes = np.array([*listed, np.inf])
    above = sizes[np.searchsorted(sizes, tokens)]
    return np.where((np.asarray(tokens) > 0) & (above < np.inf), above, tokens)
