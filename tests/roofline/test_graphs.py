"""Rows that fill a step up to a captured size: those of decodes alone, and those that choose experts in any step."""

import numpy as np
import pytest

from simulator.models.operations import Counts
from simulator.roofline.graphs import EVERY_STEP, Graphs, HostLaunch, Launches

SIZES = (2, 4, 8)


def decodes(*tokens: float) -> Counts:
    return Counts(steps=np.ones(len(tokens)), tokens=np.array(tokens), logits=np.array(tokens))


def test_decodes_are_filled_up_to_the_next_size_and_no_step_of_none_or_of_more_than_all():
    """Each row that fills up has a logit; the sequences read what they read."""
    found = Graphs(batch_sizes=SIZES, padding=True).filled(decodes(0, 1, 2, 3, 5, 8, 9))
    assert found.tokens.tolist() == found.logits.tolist() == [0, 2, 2, 4, 8, 8, 9]
    drafted = decodes(3)._replace(logits=np.array([6.0]), decode_reads=np.array([300.0]))
    filled = Graphs(batch_sizes=SIZES, padding=True).filled(drafted)
    assert (filled.logits.tolist(), filled.decode_reads.tolist()) == ([7.0], [300.0])


def test_a_step_with_one_token_of_a_prompt_is_not_filled_up():
    mixed = decodes(3)._replace(prefill_tokens=np.array([1.0]))
    assert Graphs(batch_sizes=SIZES, padding=True).filled(mixed).tokens.tolist() == [3]


@pytest.mark.parametrize("given", [{"batch_sizes": SIZES}, {"padding": True}, {}])
def test_without_padding_or_sizes_nothing_is_filled_up(given):
    three = decodes(3)
    assert Graphs(**given).filled(three) is three


def test_rows_that_choose_experts_fill_up_any_step():
    mixed = decodes(0, 1, 3, 8, 9)._replace(prefill_tokens=np.array([0, 0, 1.0, 0, 0]))
    assert Graphs(routed_sizes=SIZES).routed(mixed).tokens.tolist() == [0, 2, 4, 8, 9]
    assert Graphs().routed(mixed) is mixed


def test_by_default_one_graph_launches_all_decodes_and_the_host_all_prompts():
    """However many they are; and by default neither takes the host any time."""
    steps = decodes(1, 10.0**9)._replace(prefill_tokens=np.array([1.0, 0.0]))
    gaps_s, least_s = Graphs().launched(Launches(HostLaunch(2.0), HostLaunch(3.0)), steps)
    assert (gaps_s.tolist(), least_s.tolist()) == ([0, 0], [2.0, 0.0])
    assert Graphs().decode_tokens == EVERY_STEP > 10**9
    assert Graphs().tokens == Graphs().decode_piecewise_tokens == 0
    assert Launches() == (HostLaunch(0.0, 0.0, 0.0), HostLaunch(0.0, 0.0, 0.0), 0.0)
