"""Attention over a paged KV cache: prompts with torch's fused kernel, decodes block by block; on CUDA both in one.

The decodes of a batch have different lengths. Padding them to the longest costs batch x longest; here each cached
block is one small product, and the blocks of a sequence are put together by a running softmax (Dao et al. 2023,
Flash-Decoding), so that the work is the sum of the lengths, which is what the simulator counts.
"""

import torch
from torch import Tensor
from torch.nn import functional

from simulator.reference.batch import Chunk, Ragged, Reads, StepBatch
from simulator.reference.cache import LayerCache


def attend(queries: Tensor, cache: LayerCache, batch: StepBatch, window: int) -> Tensor:
    """Return the attention output [T, heads x head_dim] of queries [T, heads, head_dim], in their dtype.

    Rows 0 to `batch.decodes` - 1 are decodes, the others prompt chunks. Keys and values of the new tokens must be in
    the cache already. `window`: tokens that a layer attends to, 0 for all.
    """
    if batch.ragged is not None:
        return attend_ragged(queries, cache, batch.ragged, window)
    rows = []
    if batch.decodes:
        rows.append(attend_decodes(queries[: batch.decodes], cache, batch.reads[window]))
    rows.extend(attend_chunk(queries[chunk.start : chunk.end], cache, chunk, window) for chunk in batch.chunks)
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def attend_ragged(queries: Tensor, cache: LayerCache, ragged: Ragged, window: int) -> Tensor:
    """Return [new tokens, heads x head_dim] for the queries [new tokens, heads, head_dim] of all sequences together.

    Their cached tokens are put one after the other. How many kernels run does not depend on the batch: what the host
    takes to launch a step is a constant.
    """
    blocks, offsets = ragged.places
    keys, values = (each[blocks, :, offsets] for each in (cache.keys, cache.values))
    return flash_attention(queries, keys, values, ragged, window).reshape(len(queries), -1)


def flash_attention(queries: Tensor, keys: Tensor, values: Tensor, ragged: Ragged, window: int) -> Tensor:
    """Return [new tokens, heads, head_dim]; token i of a sequence attends to those before it, the last `window`.

    FlashAttention 2 (Dao 2023) as torch has it on CUDA. Its public name, varlen_attn, is in the newest releases alone.
    """
    ends = ragged.query_ends, ragged.key_ends, ragged.most_queries, ragged.most_keys
    left = window - 1 if window else None
    flash = torch.ops.aten._flash_attention_forward
    output: Tensor = flash(queries, keys, values, *ends, 0.0, True, False, window_size_left=left)[0]
    return output


def attend_decodes(queries: Tensor, cache: LayerCache, reads: Reads) -> Tensor:
    """Return [sequences, heads x head_dim] for one query per sequence, [sequences, heads, head_dim].

    out = sum_blocks exp(s - m) V / sum_blocks exp(s - m), with scores s = q k / sqrt(head_dim) and m their maximum over
    the sequence. Scores and sums are float32, whatever the dtype of queries and cache.
    """
    sequences, heads, width = queries.shape
    kv_heads, size = cache.keys.shape[1:3]
    shared, count = heads // kv_heads, len(reads.blocks)
    keys = cache.keys.index_select(0, reads.blocks).view(count * kv_heads, size, width)
    values = cache.values.index_select(0, reads.blocks).view(count * kv_heads, size, width)
    grouped = (queries * width**-0.5).view(sequences, kv_heads, shared, width)
    asked = grouped.index_select(0, reads.owners).view(count * kv_heads, shared, width)
    scores = torch.bmm(asked, keys.transpose(1, 2)).view(count, kv_heads, shared, size).float() + reads.mask
    highest = scores.new_full((sequences, kv_heads, shared), -torch.inf)
    index = reads.owners[:, None, None].expand(-1, kv_heads, shared)
    highest = highest.scatter_reduce(0, index, scores.amax(-1), "amax")
    weights = torch.exp(scores - highest.index_select(0, reads.owners)[..., None])
    total = torch.zeros_like(highest).index_add_(0, reads.owners, weights.sum(-1))
    weighted = torch.bmm(weights.to(values.dtype).view(count * kv_heads, shared, size), values)
    summed = total.new_zeros((sequences, kv_heads, shared, width))
    summed.index_add_(0, reads.owners, weighted.view(count, kv_heads, shared, width).float())
    return (summed / total[..., None]).to(queries.dtype).view(sequences, heads * width)


def attend_chunk(queries: Tensor, cache: LayerCache, chunk: Chunk, window: int) -> Tensor:
    """Return [new tokens, heads x head_dim] for the queries [new tokens, heads, head_dim] of one prompt chunk.

    Token i attends to the cached tokens before it and itself, the last `window` of them where window is not 0.
    """
    new, heads, width = queries.shape
    past, whole = chunk.past_tokens, chunk.past_tokens + new
    keys, values = cache.read(chunk.blocks, whole)
    asked = queries.transpose(0, 1)[None]
    mask, causal = None, past == 0 and not 0 < window < whole
    if not causal:
        position = torch.arange(past, whole, device=queries.device)[:, None]
        key = torch.arange(whole, device=queries.device)[None]
        mask = (key <= position) & (key > position - (window or 2**40))
    found = functional.scaled_dot_product_attention(
        asked, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=heads != keys.shape[1]
    )
    return found[0].transpose(0, 1).reshape(new, heads * width)
