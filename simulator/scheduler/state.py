"""State of a scheduler: its limits, counters, requests, running list and prefix cache, as arrays that numba compiles.

Conventions of the compiled scheduler: `s` is the State of one engine, `request` a row of `s.requests`, `j` a position
in the running list (a row of `s.slots`), times are in seconds, everything else counts tokens, blocks or requests
(int64). "Rule X" refers to docs/serving-rules.md, which also says where rules 1 to 14 stand.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.scheduler.jit import compiled, inlined

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Table = np.recarray[Any, Any]  # rows are records: row.field reads and writes

CONTINUOUS, STATIC, PROMPTS_FIRST, UNCACHED = 0, 1, 2, 3
POLICIES = {"continuous": CONTINUOUS, "static": STATIC, "prompts-first": PROMPTS_FIRST, "uncached": UNCACHED}
NEVER = 2**62  # a tick, or a check of an autoscaler, that is never reached
NOBODY = -1  # no request
ABSENT, ON_DEVICE, ON_HOST = 0, 1, 2  # where a prefix block is


class SchedulerLimits(NamedTuple):
    """What a scheduler may do: its policy and the engine's settings, under vLLM's names where vLLM has the setting.

    A sequence of t cached tokens, c = ceil(t / block_size), holds full_groups c + window_groups min(c, window_blocks)
    blocks. Rules: docs/serving-rules.md.
    """

    policy: int  # one of POLICIES
    max_num_seqs: int  # sequences that run at once
    max_num_batched_tokens: int  # token budget of a step
    num_blocks: int  # KV-cache blocks
    block_size: int  # tokens per block
    admit_full_prompt: bool  # admit a request only if its whole prompt fits in free blocks
    async_scheduling: bool = False  # a step is decided while the one before runs, so it misses the arrivals in between
    launches_ahead: bool = False  # the host launches a step while the one before runs
    prompts_wait: bool = False  # but one with prompts after it
    window: int = 0  # tokens of the window or chunk that local layers attend to; 0: none
    chunked: bool = False  # it is a chunk: it begins anew after so many tokens
    full_groups: int = 1  # KV-cache groups of layers that cache every token
    window_groups: int = 0  # KV-cache groups of layers with a sliding window or with recurrent states
    window_blocks: int = 0  # most blocks per sequence and windowed group
    admit_full_output: bool = False  # admit a request only if all blocks that it will ever hold are sure to be free
    least_free_blocks: int = 0  # beside running requests, nothing is admitted while fewer are free
    watermark_blocks: int = 0  # beside running requests, an admission leaves so many free
    estimated_tokens: int = 0  # rule J: a request is taken to produce so many more tokens at most; 0: no such rule,
    first_ratio: float = 0.0  # the share of these that is kept free for what decodes, in the beginning,
    least_ratio: float = 0.0  # and at least,
    ratio_decay: float = 0.0  # what a step of decodes takes from it,
    spare_tokens: int = 0  # and what a preemption adds to the tokens of each before it is set from them,
    ignores_eos: bool = False  # a prompt needs room until each has ended, instead of room for its own output
    least_waiting: int = 0  # rule M: requests that may be admitted once more before decodes; 0: no such rule
    prompt_interval: int = 0  # beside running requests, nothing is admitted for so many decode steps after an admission
    scheduler_recv_interval: int = 1  # arrivals are received every so many steps of decodes alone (SGLang)
    long_prefill_tokens: int = 0  # of one prompt in a step at most (vLLM: long_prefill_token_threshold); 0: no limit
    chunked_prefill: bool = True  # off: a prompt is computed in one step
    by_priority: bool = False  # queue and preemption go by priority instead of arrival
    batch_size: int = 1  # static: requests for which an idle engine waits,
    batch_wait_s: float = 0.0  # and the longest time that the first of them waits
    prefix_block_tokens: int = 0  # tokens of a prefix block; 0: no prefix cache
    host_prefix_blocks: int = 0  # prefix blocks that a second tier in host memory holds
    draft_tokens: int = 0  # draft tokens per sequence and step
    expected_acceptance: bool = False  # produce the expected number of tokens instead of a random one
    stream_s: float = 0.0  # time of the front end to stream one sequence's token, one sequence after the other
    turnaround_s: float = 0.0  # from the end of a request until its client has the answer and can send the next one
    max_model_len: int = 0  # a request of more tokens, prompt and output, is rejected; 0: no limit
    first_call_s: float = 0.0  # what an engine's first step takes longer: nothing has warmed it up
    num_scheduler_steps: int = 1  # rule Y: a step of decodes is so many in one; `draft_tokens` is then one less


MAX_DRAFT_TOKENS = 32
PACKED = np.dtype(
    [
        *((name, np.dtype(kind)) for name, kind in SchedulerLimits.__annotations__.items()),
        ("reached", np.float64, (MAX_DRAFT_TOKENS,)),  # probability that a draft token and all before it are accepted
        ("tokens_per_step", np.float64),  # expected tokens per sequence and step
    ],
    align=True,
)

BOOK = np.dtype(  # the scheduler's counters
    [
        (name, np.int64)
        for name in (
            "tick",  # decode steps so far
            "admitted_tick",  # tick of the last admission
            "has_looked",  # 1: with least_waiting: the last step was open to new requests
            "received_tick",  # tick at which arrivals were received last
            "running",  # sequences in the running list
            "decoding",  # how many of them decode: the first ones
            "free_blocks",  # KV-cache blocks, those of idle prefix blocks included
            "waiting",  # requests in the queue
            "head",  # first request in the queue
            "tail",  # last request in the queue
            "waiting_blocks",  # blocks for the prompts of the waiting requests
            "next_event_tick",  # no decoding sequence ends or outgrows its window or chunk before it
            "base_sum",  # sum of `cached` over decoding sequences
            "open_base_sum",  # the same over those within their window or chunk, less `chunk_start`
            "open_reads",  # number of sequences that are still shorter than the window, or that have chunks
            "unfinished",  # decoding sequences with tokens left to produce (static batches pad the others)
            "finished",  # requests finished so far
            "first_done",  # first request that the last step finished, chained by `next`; NOBODY: none
            "last_done",  # last request that the last step finished
            "arrived",  # loop of one engine: requests 0 .. arrived-1 have arrived
            "released",  # its closed loop: requests 0 .. released-1 have been sent
            "last_call",  # 1: no arrival lies ahead
            "decode_now",  # this step: 1 if the decoding sequences advance
            "budget",  # this step: tokens that may still be scheduled
            "prompt_tokens",  # this step: tokens of prompts
            "prompt_pairs",  # this step: causal query-key pairs of prompts
            "prompt_pairs_windowed",  # the same in local layers
            "loaded_tokens",  # this step: cached tokens loaded from the host tier
            "scheduled",  # this step: sequences
            "is_full",  # rule J: 1: nothing is admitted until a request finishes or is preempted
            "expected_tokens",  # and this step: tokens that the decoding sequences may still produce,
            "charged_tokens",  # tokens kept free for its prompts,
            "preempted",  # 1: it preempted a sequence
            "promised",  # with admit_full_output: most blocks that the running requests will ever hold
            "prompt_cached",  # sum of `cached` over prompts under way
            "padding",  # cached tokens of finished sequences in a static batch, less their bases
            "idle_prefix_blocks",  # cached prefix blocks that no request holds
            "host_prefix_blocks",  # prefix blocks in the host tier
            "extra_holders",  # holders of prefix blocks beyond the first of each
        )
    ]
    + [
        ("ratio", np.float64),  # rule J: share of the expected tokens that is kept free
        ("shown_s", np.float64),  # when the front end is done with the steps that have ended
        ("received_s", np.float64),  # the time up to which the scheduler has received arrivals
        ("ahead_s", np.float64),  # rule N: by which the host may begin to launch this step before devices begin it
    ]
)

REQUEST = np.dtype(
    [
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("arrival_s", np.float64),  # infinite while a closed loop has not sent it
        ("next", np.int64),  # request behind it in the queue; with priorities: right sibling in the heap
        ("previous", np.int64),  # request before it; in the heap: left sibling, or parent of the leftmost child
        ("child", np.int64),  # in the heap: leftmost child
        ("priority", np.int64),  # smaller is more urgent
        ("first_prefix_block", np.int64),  # where its ids begin in prefix_block_ids
        ("prefix_block_count", np.int64),  # how many they are
        ("prefilled", np.int64),  # 1 until its first admission if the KV cache of its prompt was computed elsewhere
        ("hit_tokens", np.int64),  # prompt tokens found in the prefix cache at its first admission
        ("emitted", np.int64),  # output tokens produced before its last preemption
        ("preemptions", np.int64),
        ("scheduled_s", np.float64),  # start of its first step
        ("first_token_s", np.float64),
        ("finished_s", np.float64),
        ("stalled_s", np.float64),  # time between preemptions and the next token after each
    ]
)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("cached", np.int64),  # tokens in the KV cache; minus `tick` while decoding
        ("last_tick", np.int64),  # tick at which a decoding sequence has produced everything
        ("chunk", np.int64),  # tokens of its prompt that this step computes
        ("held_prefix_blocks", np.int64),  # leading prefix blocks that it holds
        ("room", np.int64),  # with draft tokens: tokens that fit in the blocks of a decoding sequence
        ("joined_tick", np.int64),  # tick at which it began to decode
        ("seed", np.int64),  # start of its random numbers
        ("open_reads", np.int64),  # 1 while a decoding sequence is shorter than the window, or if it has chunks
        ("chunk_start", np.int64),  # where its present chunk begins; 0 without chunks
        ("open_blocks", np.int64),  # 1 while its windowed blocks still grow
        ("to_come", np.int64),  # notes of rule J, sorted: tokens that a running request will still produce,
        ("tokens", np.int64),  # and all that it has then
    ]
)

PREFIX_BLOCK = np.dtype(
    [
        ("place", np.int64),  # ABSENT, ON_DEVICE or ON_HOST
        ("holders", np.int64),  # running requests that hold it
        ("next", np.int64),  # more recently used neighbour in the list of idle blocks, or in the host's
        ("previous", np.int64),  # less recently used neighbour
    ]
)


class State(NamedTuple):
    """Everything that the scheduler of one engine knows and changes; shapes stand beside the fields."""

    limits: Any  # a PACKED record, which compiled code passes on as one pointer
    book: Table  # (1,) of BOOK
    requests: Table  # (requests,) of REQUEST
    slots: Table  # (max_num_seqs + 1,) of SLOT: the running list, and one row to swap with
    growth: Ints  # (block_size,): blocks that decoding sequences need when -tick is this modulo the block size
    prefix_blocks: Table  # (ids + 2,) of PREFIX_BLOCK by id, then the ends of the idle list and of the host's list
    prefix_block_ids: Ints  # ids of all requests' prefix blocks


class Engines(NamedTuple):
    """Several engines that share one table of requests; `engine_state` returns slices of these arrays."""

    limits: Any  # these tables have one row, or one row of rows, per engine
    books: Any
    requests: Table
    slots: Any
    growth: Ints
    prefix_blocks: Any
    prefix_block_ids: Ints


Kind = tuple[SchedulerLimits, tuple[float, ...]]  # acceptance probability of each draft token if all before it are


def new_requests(arrival_s: Floats, prompt_tokens: Ints, output_tokens: Ints) -> Table:
    """Return the table of requests before any of them has arrived, shape (requests,) of REQUEST.

    `arrival_s` (float64, seconds), `prompt_tokens` and `output_tokens` (int64) have shape (requests,).
    """
    requests = np.zeros(len(prompt_tokens), REQUEST).view(np.recarray)
    requests.arrival_s, requests.prompt_tokens, requests.output_tokens = arrival_s, prompt_tokens, output_tokens
    for name in ("scheduled_s", "first_token_s", "finished_s"):
        requests[name] = np.nan
    return requests


def new_engines(kinds: Sequence[Kind], requests: Table, prefix_block_ids: Ints) -> Engines:
    """Return idle engines with empty queues and prefix caches.

    `kinds`: limits and acceptance probabilities of each engine. `prefix_block_ids`, int64: ids 0, 1, ... of all
    requests' prefix blocks, of which each request has a slice (`first_prefix_block`, `prefix_block_count`).
    """
    count, each = len(kinds), [limits for limits, _ in kinds]
    packed, books = np.zeros(count, PACKED).view(np.recarray), np.zeros(count, BOOK).view(np.recarray)
    slots = np.zeros((count, max(limits.max_num_seqs for limits in each) + 1), SLOT).view(np.recarray)
    growth = np.zeros((count, max(limits.block_size for limits in each)), np.int64)
    rows = int(prefix_block_ids.max(initial=-1)) + 3 if any(limits.prefix_block_tokens for limits in each) else 0
    prefix_blocks = np.zeros((count, rows), PREFIX_BLOCK).view(np.recarray)
    engines = Engines(packed, books, requests, slots, growth, prefix_blocks, np.array(prefix_block_ids))
    for index, kind in enumerate(kinds):
        packed[index] = _packed(*kind)
        reset(engine_state(engines, index))
    return engines


def _packed(limits: SchedulerLimits, acceptance: tuple[float, ...]) -> Any:
    """Return the limits as one record, with the products a0, a0 a1, ... and tokens per step 1 + a0 + a0 a1 + ..."""
    packed = np.zeros(1, PACKED).view(np.recarray)
    for name, value in limits._asdict().items():
        packed[name] = value
    reached, packed.tokens_per_step = 1.0, 1.0
    for position, chance in enumerate(acceptance):
        reached *= chance
        packed.reached[0, position] = reached
        packed.tokens_per_step += reached
    return packed[0]


def limits_of_record(packed: Any) -> SchedulerLimits:
    """Return the limits from a state's record."""
    return SchedulerLimits(*(packed[name].item() for name in SchedulerLimits._fields))


def engine_state(engines: Engines, index: int) -> State:
    """Return the State of one engine: views, so that changes reach the shared arrays."""
    e = engines
    book, slots, growth, prefix_blocks = (
        e.books[index : index + 1],
        e.slots[index],
        e.growth[index],
        e.prefix_blocks[index],
    )
    return State(e.limits[index], book, e.requests, slots, growth, prefix_blocks, e.prefix_block_ids)


view = inlined(engine_state)  # for compiled code, which must not return what it gives: arrays lose their shape there


@compiled
def clear(s: State) -> None:
    """Remove everything that runs and free all KV-cache blocks."""
    book = s.book[0]
    book.running = book.decoding = book.unfinished = book.base_sum = book.open_base_sum = book.open_reads = 0
    book.promised = book.prompt_cached = book.padding = 0
    book.free_blocks = s.limits.num_blocks
    book.next_event_tick = NEVER
    s.growth[:] = 0


@compiled
def reset(s: State) -> None:
    """Make an engine idle with an empty queue and prefix cache; the rows of its requests stay as they are."""
    clear(s)
    book = s.book[0]
    book.waiting = book.waiting_blocks = book.idle_prefix_blocks = book.host_prefix_blocks = book.extra_holders = 0
    book.head = book.tail = book.first_done = NOBODY
    book.shown_s, book.ratio, book.is_full = 0.0, s.limits.first_ratio, 0
    for index in range(len(s.prefix_blocks)):
        row = s.prefix_blocks[index]
        row.place, row.holders = ABSENT, 0
        row.next = row.previous = index


@compiled
def blocks(limits: SchedulerLimits, tokens: int) -> int:
    """Return the KV-cache blocks that a sequence of `tokens` cached tokens holds.

    full_groups c + window_groups min(c, window_blocks), c = ceil(tokens / block_size): docs/serving-rules.md, K.
    """
    full = -(-tokens // limits.block_size)
    return limits.full_groups * full + limits.window_groups * min(full, limits.window_blocks)


@compiled
def most_blocks(limits: SchedulerLimits, tokens: int) -> int:
    """Return the most KV-cache blocks that a request of `tokens` prompt and output tokens ever holds.

    Its last output token is never cached, its draft tokens are. Rules 1, K and S1.
    """
    return blocks(limits, tokens - 1 + limits.draft_tokens)


@inlined
def whole_blocks(limits: SchedulerLimits, tokens: int) -> int:
    """Return how many tokens fit into the blocks that `tokens` tokens need: `tokens` rounded up to whole blocks."""
    return -(-tokens // limits.block_size) * limits.block_size


@inlined
def pairs(new: int, past: int) -> int:
    """Count the causal query-key pairs of `new` tokens after `past` cached ones: query i attends to past + i + 1."""
    return new * past + new * (new + 1) // 2


@compiled
def local_pairs(limits: SchedulerLimits, new: int, past: int) -> int:
    """Count those within the window or chunk of local layers: the compiled form of models.operations.pairs."""
    return _pairs_before(limits, past + new) - _pairs_before(limits, past)


@inlined
def _pairs_before(limits: SchedulerLimits, tokens: int) -> int:
    rest = tokens % limits.window if limits.chunked else tokens
    growing = min(rest, limits.window)
    return (tokens - rest) * (limits.window + 1) // 2 + pairs(growing, 0) + (rest - growing) * limits.window
