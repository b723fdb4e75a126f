"""What a scheduler knows: limits, a book, a table of requests, the running list and a cache, as arrays for numba."""

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
NEVER = 2**62
NOBODY = -1
ABSENT, ON_DEVICE, ON_HOST = 0, 1, 2  # where a unit of the prefix cache is


class SchedulerLimits(NamedTuple):
    """What an engine is allowed; blocks(t) = full_groups ceil(t/b) + window_groups min(ceil(t/b), window_blocks)."""

    policy: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    admit_full_prompt: bool
    async_scheduling: bool = False  # a step is decided while the one before runs, so it misses the arrivals in between
    window: int = 0  # 0: no layer has one
    full_groups: int = 1
    window_groups: int = 0
    window_blocks: int = 0
    admit_full_output: bool = False  # a request waits until all that it will ever hold is sure to fit
    least_free_blocks: int = 0  # beside running requests, nothing is admitted while fewer are free
    prompt_interval: int = 0  # nor before so many decode steps since the last admission
    long_prefill_tokens: int = 0  # most tokens of one prompt in a step; 0: no such limit
    chunked_prefill: bool = True  # off: a prompt is computed in one step
    by_priority: bool = False  # the queue and the victims of preemption go by priority, not by arrival
    batch_size: int = 1  # static: requests that an idle engine waits for,
    batch_wait_s: float = 0.0  # and how long the first of them waits at most
    prefix_block_tokens: int = 0  # tokens of a unit of the prefix cache; 0: none
    host_prefix_blocks: int = 0  # units that a second tier in host memory holds
    draft_tokens: int = 0  # tokens that are proposed for each sequence and step
    expected_acceptance: bool = False  # produce the expected number of tokens instead of drawing it
    graph_tokens: int = 0  # a step with prompts and more tokens is launched by the host, kernel by kernel
    stream_s: float = 0.0  # that the front end takes for each sequence of a step, one after the other
    turnaround_s: float = 0.0  # from the end of a request until its user, who then sends the next one, has the answer


MAX_DRAFT_TOKENS = 32
PACKED = np.dtype(
    [
        *((name, np.dtype(kind)) for name, kind in SchedulerLimits.__annotations__.items()),
        ("reached", np.float64, (MAX_DRAFT_TOKENS,)),  # probability that a draft token and all before it are accepted
        ("tokens_per_step", np.float64),
    ],
    align=True,
)

BOOK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "tick",  # decode steps so far
            "admitted_tick",  # the same at the last admission
            "running",  # sequences in the running list
            "decoding",  # of these, the first so many decode
            "free_blocks",
            "waiting",  # requests in the queue
            "head",  # the first and the last of them
            "tail",
            "waiting_blocks",  # blocks that the prompts of these need
            "next_event_tick",  # no decoding sequence ends or outgrows its window before it
            "base_sum",  # of `cached` over decoding sequences
            "open_base_sum",  # the same over those still inside their window
            "open_reads",  # number of those
            "unfinished",  # decoding sequences that have tokens to produce (static batches pad the others)
            "finished",  # requests finished so far
            "first_done",  # of those of the last step, chained by `next`; NOBODY: there is none
            "last_done",
            "arrived",  # the loop of one engine: requests 0 .. arrived-1 have arrived
            "released",  # its closed loop: requests 0 .. released-1 have been sent
            "last_call",  # 1: no arrival lies ahead
            "decode_now",  # this step: decoding sequences advance
            "budget",  # this step: tokens that may still be scheduled
            "prompt_tokens",  # this step: tokens of prompts
            "prompt_pairs",
            "prompt_pairs_windowed",
            "loaded_tokens",  # this step: tokens that come back from the host's tier
            "scheduled",  # this step: sequences
            "promised",  # blocks that running requests hold at their end, where only such are admitted as fit to it
            "prompt_cached",  # sum of `cached` over prompts under way
            "padding",  # cached tokens of finished sequences in a static batch, less their bases
            "idle_prefix_blocks",  # units of the prefix cache that nobody holds
            "host_prefix_blocks",  # units in the host's tier
            "extra_holders",  # holders of units beyond the first of each
        )
    ]
    + [("shown_s", np.float64)]  # until when the front end is busy with the steps that have ended
)

REQUEST = np.dtype(
    [
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("arrival_s", np.float64),  # infinite while a closed loop has not sent it
        ("next", np.int64),  # the one behind in the queue; by priority: to the right in a heap
        ("previous", np.int64),  # the one before; in a heap: to the left, or the parent of the leftmost
        ("child", np.int64),  # in a heap: the leftmost child
        ("priority", np.int64),  # smaller goes first
        (
            "first_prefix_block",
            np.int64,
        ),  # its ids stand in prefix_block_ids[first_prefix_block : first_prefix_block + units]
        ("prefix_block_count", np.int64),
        ("prefilled", np.int64),  # 1 while it brings the cache of its prompt from elsewhere
        ("hit_tokens", np.int64),  # found in the prefix cache at its first admission
        ("emitted", np.int64),  # tokens produced before the last preemption
        ("preemptions", np.int64),
        ("scheduled_s", np.float64),
        ("first_token_s", np.float64),
        ("finished_s", np.float64),
        ("stalled_s", np.float64),  # time between preemptions and the next tokens
    ]
)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("cached", np.int64),  # tokens in the cache; minus `tick` while decoding
        ("last_tick", np.int64),  # tick at which a decoding sequence has produced everything
        ("chunk", np.int64),  # tokens of its prompt that this step computes
        ("held_prefix_blocks", np.int64),  # leading units of the prefix cache that it holds
        ("room", np.int64),  # tokens that the blocks of a decoding sequence with drafts have room for
        ("joined_tick", np.int64),  # tick at which it began to decode
        ("seed", np.int64),  # what its draws begin with
        ("open_reads", np.int64),  # 1 while a decoding sequence is shorter than the window
        ("open_blocks", np.int64),  # 1 while its windowed blocks still grow
    ]
)

PREFIX_BLOCK = np.dtype(
    [
        ("place", np.int64),  # ABSENT, ON_DEVICE or ON_HOST
        ("holders", np.int64),
        ("next", np.int64),  # neighbours among the idle units, or among those on the host: the next is more recent
        ("previous", np.int64),
    ]
)


class State(NamedTuple):
    """Everything a scheduler knows."""

    limits: Any  # a record of `SchedulerLimits` and of drafts: compiled code hands it over as one pointer
    book: Table  # one row
    requests: Table
    slots: Table  # the running list, and one place to swap
    growth: Ints  # blocks that decoding sequences need when -tick is this modulo the block size
    prefix_blocks: Table  # the prefix cache by id, and two ends of lists: of idle units, of the host's
    prefix_block_ids: Ints  # of all requests


class Engines(NamedTuple):
    """Several engines that share one table of requests: the State of each is a slice."""

    limits: Any  # tables with one row, or one row of rows, per engine
    books: Any
    requests: Table
    slots: Any
    growth: Ints
    prefix_blocks: Any
    prefix_block_ids: Ints


Kind = tuple[
    SchedulerLimits, tuple[float, ...]
]  # an engine; probability that each draft is accepted if all before it are


def new_requests(arrival_s: Floats, prompt_tokens: Ints, output_tokens: Ints) -> Table:
    """Return the table of requests that nobody has seen yet."""
    requests = np.zeros(len(prompt_tokens), REQUEST).view(np.recarray)
    requests.arrival_s, requests.prompt_tokens, requests.output_tokens = arrival_s, prompt_tokens, output_tokens
    for name in ("scheduled_s", "first_token_s", "finished_s"):
        requests[name] = np.nan
    return requests


def new_engines(kinds: Sequence[Kind], requests: Table, prefix_block_ids: Ints) -> Engines:
    """Return idle engines with empty queues and caches; ids of units are 0, 1, ..."""
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
    """Return a record of the limits, of a0, a0 a1, ..., and of 1 + their sum: what a step produces on average."""
    packed = np.zeros(1, PACKED).view(np.recarray)
    for name, value in limits._asdict().items():
        packed[name] = value
    reached, packed.tokens_per_step = 1.0, 1.0
    for position, chance in enumerate(acceptance):
        reached *= chance
        packed.reached[0, position] = reached
        packed.tokens_per_step += reached
    return packed[0]


def unpacked(packed: Any) -> SchedulerLimits:
    """Return the limits of a state as they were given."""
    return SchedulerLimits(*(packed[name].item() for name in SchedulerLimits._fields))


def engine_state(engines: Engines, index: int) -> State:
    """Return what the scheduler of one engine knows: views, so that what it changes stays."""
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
    """End everything that runs at once and free all blocks."""
    book = s.book[0]
    book.running = book.decoding = book.unfinished = book.base_sum = book.open_base_sum = book.open_reads = 0
    book.promised = book.prompt_cached = book.padding = 0
    book.free_blocks = s.limits.num_blocks
    book.next_event_tick = NEVER
    s.growth[:] = 0


@compiled
def reset(s: State) -> None:
    """Make an engine idle, its queue and its cache empty; the rows of its requests stay as they are."""
    clear(s)
    book = s.book[0]
    book.waiting = book.waiting_blocks = book.idle_prefix_blocks = book.host_prefix_blocks = book.extra_holders = 0
    book.head = book.tail = book.first_done = NOBODY
    book.shown_s = 0.0
    for index in range(len(s.prefix_blocks)):
        row = s.prefix_blocks[index]
        row.place, row.holders = ABSENT, 0
        row.next = row.previous = index


@compiled
def blocks(limits: SchedulerLimits, tokens: int) -> int:
    """Return the cache blocks that a sequence of so many cached tokens holds."""
    full = -(-tokens // limits.block_size)
    return limits.full_groups * full + limits.window_groups * min(full, limits.window_blocks)


@compiled
def most_blocks(limits: SchedulerLimits, tokens: int) -> int:
    """Return the most blocks that a request of so many tokens, prompt and answer, ever holds.

    Its last token is never cached, its draft tokens are.
    """
    return blocks(limits, tokens - 1 + limits.draft_tokens)


@inlined
def whole_blocks(limits: SchedulerLimits, tokens: int) -> int:
    """Return the tokens that the blocks of so many tokens have room for."""
    return -(-tokens // limits.block_size) * limits.block_size


@compiled
def pairs(new: int, past: int, window: int) -> int:
    """Count causal query-key pairs of `new` tokens after `past`; a window of 0 is none (see work.pairs)."""
    growing = new if window == 0 else max(0, min(new, window - past))
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * window
