"""One scheduled step by hand: decodes with drafts beside a prompt, looked up in a table whose rows rise unevenly."""

import numpy as np

from simulator.roofline.graphs import HostLaunch
from simulator.roofline.step_model import MOST_FIELDS, StepTable
from simulator.scheduler.state import POLICIES, SchedulerLimits
from simulator.simulation.engine_loop import opening
from simulator.simulation.step_seconds import slope, step_seconds
from simulator.workloads.workload import Requests

LIMITS = SchedulerLimits(
    policy=POLICIES["continuous"],
    max_num_seqs=8,
    max_num_batched_tokens=64,
    num_blocks=100,
    block_size=1,
    admit_full_prompt=False,
    draft_tokens=1,
)
TABLE = StepTable(
    token_s=np.arange(65.0) ** 2,
    logit_s=np.arange(17.0) ** 3,
    slopes=np.array([1e-3, 0.0, 1e-4, 1e-5, 0.0]),
    draft_s=np.array([0.0, 0.5, 0.7]),
    loaded_s=1e-6,
    prompts=HostLaunch(gaps_s=1000.0),
    graph_tokens=8,
)


def test_drafts_are_tokens_and_logits_of_decodes_and_a_prompt_adds_to_both():
    """Two sequences of 10 cached tokens compute a token and a draft each, beside 5 tokens of a prompt: 9 in all.

    Both read 10 + 2 x (1 + 1) tokens; the prompt has 15 pairs, and one token from the host.
    """
    one = Requests(np.zeros(1), np.array([5]), np.array([2]))
    s = opening(LIMITS, one, (0.5,))
    book = s.book[0]
    book.shown_s, book.decoding, book.decode_now, book.scheduled, book.base_sum = 1.0, 2, 1, 3, 10
    alone_s = 4**2 + 4**3 + 0.7 + 14e-3
    assert np.allclose(step_seconds(s, TABLE), (alone_s, 0.0), rtol=1e-12)
    book.prompt_tokens, book.prompt_pairs, book.loaded_tokens = 5, 15, 1
    both_s = 9**2 + 5**3 + 0.7 + 14e-3 + 5e-4 + 15e-5 + 1e-6
    assert np.allclose(step_seconds(s, TABLE), (both_s, both_s - alone_s), rtol=1e-12)
    book.prompt_tokens = 4  # 8 tokens are launched in pieces
    piecewise_s = both_s - 9**2 + 8**2 - 1e-4 + 1000
    assert np.allclose(step_seconds(s, TABLE), (piecewise_s, piecewise_s - alone_s), rtol=1e-12)


def test_the_host_launches_a_step_while_the_one_before_runs():
    """Decodes of 3 s in one graph, then a prompt that the host launches in 5 s, twice, with 1 s of work."""
    table = StepTable(
        np.array([0.0, 3.0, 1.0, 1.0]), np.zeros(4), np.zeros(5), prompts=HostLaunch(least_s=5.0), graph_tokens=0
    )
    found = {}
    for ahead in (False, True):
        s = opening(LIMITS._replace(draft_tokens=0, launches_ahead=ahead), Requests(np.zeros(1), *np.ones((2, 1), int)))
        book = s.book[0]
        book.shown_s, book.decoding, book.decode_now, book.scheduled = 1.0, 1, 1, 1
        found[ahead] = [step_seconds(s, table)[0]]
        book.prompt_tokens, book.scheduled = 1, 2
        found[ahead] += [step_seconds(s, table)[0] for _ in range(2)]
    assert found == {False: [3.0, 5.0, 5.0], True: [3.0, 2.0, 5.0]}


def test_a_step_with_prompts_is_launched_when_it_begins_where_it_waits_for_the_device():
    """Decodes of 3 s, a prompt that the host launches in 5 s while devices work for 6, and decodes launched in 2 s."""
    table = StepTable(
        np.array([0.0, 3.0, 6.0]),
        np.zeros(4),
        np.zeros(5),
        prompts=HostLaunch(least_s=5.0),
        decode_launch_s=np.full(3, 4.0),
    )
    found = {}
    for wait in (False, True):
        limits = LIMITS._replace(draft_tokens=0, launches_ahead=True, prompts_wait=wait)
        s = opening(limits, Requests(np.zeros(1), *np.ones((2, 1), int)))
        book = s.book[0]
        book.shown_s, book.decoding, book.decode_now, book.scheduled, book.ahead_s = 1.0, 1, 1, 1, 1.0
        book.prompt_tokens, book.scheduled = 1, 2
        step_seconds(s, table)
        found[wait] = float(book.ahead_s)
    assert found == {False: 2.0, True: 1.0}


def test_beyond_a_table_steps_rise_as_its_upper_half_does():
    """From 4 to 16 in two rows."""
    assert slope(np.array([0.0, 1.0, 4.0, 9.0, 16.0])) == 6.0


def test_a_table_has_no_more_fields_than_compiled_loops_can_keep():
    """One more, though unused, made the event loop three times as slow (docs/log.md, 2.8)."""
    assert len(StepTable._fields) <= MOST_FIELDS
