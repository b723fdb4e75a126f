"""How long a scheduled step takes: what its sequences look up in a step table, and what launches it."""

import math

from simulator.arrays import Floats
from simulator.roofline.step_model import StepTable
from simulator.scheduler.jit import compiled
from simulator.scheduler.state import State


@compiled
def step_seconds(s: State, table: StepTable) -> tuple[float, float]:
    """Return how long the scheduled step takes, and how much of it its prompts add to one of its decodes alone.

    To be called once a step: it writes down how far ahead the host may launch the next one (`ahead_s`; rule N).
    """
    book, worked_s = s.book[0], _decode_seconds(s, table)
    first_s = s.limits.first_call_s if book.shown_s == 0.0 else 0.0  # no step has ended
    decoded = book.decoding * book.decode_now * (1 + s.limits.draft_tokens)
    device_s, launch_s = _launched_decodes(s, table, decoded, worked_s)
    alone_s = seconds = max(device_s, launch_s - book.ahead_s)
    if book.prompt_tokens > 0:
        device_s, launch_s = _launched_prompts(s, table, decoded, worked_s)
        book.ahead_s = 0.0 if s.limits.prompts_wait else book.ahead_s
        seconds = max(device_s, launch_s - book.ahead_s)
    if s.limits.launches_ahead:
        book.ahead_s = min(seconds, seconds + book.ahead_s - launch_s)
    if book.prompt_tokens == 0:
        return seconds + first_s, 0.0
    seconds += first_s
    return seconds, seconds - (alone_s if book.decode_now > 0 else 0.0)


@compiled
def _launched_decodes(s: State, table: StepTable, tokens: int, worked_s: float) -> tuple[float, float]:
    """Return how long devices take for a step of decodes alone, and what launches it: a graph, some, or the host.

    Of several steps that are decided at once (rule Y) each is launched.
    """
    passes = s.limits.num_scheduler_steps
    at = min(tokens // passes, len(table.decode_launch_s) - 1)
    device_s = max(worked_s + table.decode_graph_s[at] * passes, table.least_s * passes)
    return device_s, table.decode_launch_s[at] * passes


@compiled
def _launched_prompts(s: State, table: StepTable, decoded: int, worked_s: float) -> tuple[float, float]:
    """Return how long devices take for a step with prompts, and what launches it: piecewise graphs, or the host.

    `worked_s`: what the `decoded` tokens take of it.
    """
    book = s.book[0]
    worked_s += _prompt_seconds(s, table)
    hidden_s = table.host_s[3] * (decoded + book.scheduled - book.decoding * book.decode_now)
    if decoded + book.prompt_tokens <= table.graph_tokens:
        return max(worked_s + table.prompts.gaps_s, table.least_s), table.prompts.piecewise_s + hidden_s
    return max(worked_s, table.least_s), table.prompts.least_s + hidden_s


@compiled
def _decode_seconds(s: State, table: StepTable) -> float:
    """Return how long the scheduled step would take without its prompts, 0 where nothing decodes."""
    book, drafts = s.book[0], s.limits.draft_tokens
    if book.decode_now == 0:
        return 0.0
    if s.limits.num_scheduler_steps > 1:
        return _steps_at_once_seconds(s, table)
    new = book.decoding * (1 + drafts)
    seconds = table.token_s[new] + _look_up(table.logit_s, new)
    if drafts > 0:
        seconds += table.draft_s[min(book.decoding, len(table.draft_s) - 1)]
    return _with_cache_reads(s, table, seconds, drafts)


@compiled
def _steps_at_once_seconds(s: State, table: StepTable) -> float:
    """Return how long several decode steps take that the host prepares once, none of which ends before the last.

    Rule Y: each reads one token of every sequence more than the one before it.
    """
    book, count = s.book[0], s.limits.num_scheduler_steps
    later = (count - 1) / 2  # tokens that a sequence has more on average than in the first of them
    each_s = table.token_s[book.decoding] + _look_up(table.logit_s, book.decoding)
    each_s = _with_cache_reads(s, table, each_s, later)
    reads = book.base_sum + book.decoding * (book.tick + 1 + later)
    host_s = table.host_s[0] + table.host_s[1] * book.decoding + table.host_s[2] * reads
    return count * each_s - (count - 1) * host_s


@compiled
def _with_cache_reads(s: State, table: StepTable, seconds: float, more: float) -> float:
    """Return `seconds` and how long the decodes read the KV cache, local layers last.

    Each sequence reads its cached tokens, the new one, and `more` tokens. Reading takes no less than the longest
    sequence takes alone (`lone_s`; in chunks (Llama 4), than the mean one, since which is longest changes), and no less
    than the blocks of all of them take to be sent off.
    """
    book = s.book[0]
    ahead = book.tick + 1 + more  # tokens that a sequence reads beside its `cached` ones
    reads, windowed = book.base_sum + book.decoding * ahead, 0.0
    if s.limits.window > 0:
        closed = book.decoding - book.open_reads
        windowed = book.open_base_sum + book.open_reads * (book.tick + 1) + closed * s.limits.window
        windowed += book.decoding * more
    every_s, windowed_s = table.slopes[0] * reads, table.slopes[1] * windowed
    if table.lone_s[0] + table.lone_s[1] > 0.0:
        longest, slower = _longest_cached(s) + ahead, _fewer_parts(table, book.decoding)
        local = windowed / book.decoding if s.limits.chunked else min(longest, s.limits.window)
        every_s = max(every_s, table.lone_s[0] * longest * slower)
        windowed_s = max(windowed_s, table.lone_s[1] * local * slower)
    every_s = max(every_s, table.lone_s[2] * book.decoding)
    windowed_s = max(windowed_s, table.lone_s[3] * book.decoding)
    return seconds + every_s + windowed_s


@compiled
def _fewer_parts(table: StepTable, decoding: int) -> float:
    """Return the parts of a lone sequence's cache over those that it has beside others (WaveDecode)."""
    if table.lone_parts == 0.0:
        return 1.0
    return max(1.0, math.floor(table.lone_parts)) / max(1.0, math.floor(table.lone_parts / decoding))


@compiled
def _longest_cached(s: State) -> int:
    """Return the most `cached` tokens of a decoding sequence; below 0 where it began at a later tick than it has."""
    longest = s.slots[0].cached
    for j in range(1, s.book[0].decoding):
        longest = max(longest, s.slots[j].cached)
    return longest


@compiled
def _prompt_seconds(s: State, table: StepTable) -> float:
    """Return the work of the scheduled prompts beside the decodes: more tokens, more logits, attention over them."""
    book = s.book[0]
    decodes = book.decoding * book.decode_now
    new = decodes * (1 + s.limits.draft_tokens)
    added = _look_up(table.token_s, new + book.prompt_tokens)
    added += _look_up(table.logit_s, new + book.scheduled - decodes)
    if decodes > 0:
        added -= table.token_s[new] + _look_up(table.logit_s, new)
    added = (
        added
        + table.slopes[2] * book.prompt_tokens
        + table.slopes[3] * book.prompt_pairs
        + table.slopes[4] * book.prompt_pairs_windowed
    )
    return added + table.loaded_s * book.loaded_tokens if book.loaded_tokens > 0 else added


@compiled
def _look_up(seconds: Floats, count: int) -> float:
    """Look up, and go on beyond the last: a static batch has more tokens, drafts more logits than are tabulated."""
    last = len(seconds) - 1
    if count <= last:
        return seconds[count]
    return seconds[last] + (count - last) * slope(seconds)


@compiled
def slope(seconds: Floats) -> float:
    """Return the seconds of one more in large steps: the mean of the upper half, as tiles of GEMMs go up in steps."""
    last = len(seconds) - 1
    half = last // 2
    return (seconds[last] - seconds[half]) / (last - half)
