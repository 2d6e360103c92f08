"""One step of beam search from logits, in two launches.

The first cuts every row of logits into blocks and gives each block's best entries with the block's
log-sum-exp; the second joins the blocks of all beams of a sequence and keeps the best beams. The
log-softmax over the vocabulary is never written out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tuner.engines.redrafter.kernels.overlap import begin, overlapped, wait

BLOCK = 4096


def beam_step(logits: Tensor, score: Tensor, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    """Extend every beam by every token and keep the best.

    Args:
        logits: [B, W, V] of the next token, contiguous.
        score: [B, W] log-probability of each beam.
        keep: beams to keep, at most W * V.

    Returns:
        Score, parent beam and token of the best `keep` beams, best first; each [B, keep].
    """
    batch, width, vocab = logits.shape
    blocks = triton.cdiv(vocab, BLOCK)
    best = min(keep, vocab)
    candidates = (batch, width, blocks, best)
    top = torch.empty(candidates, device=logits.device, dtype=torch.float32)
    index = torch.empty(candidates, device=logits.device, dtype=torch.int32)
    lse = torch.empty((batch, width, blocks), device=logits.device, dtype=torch.float32)
    overlap = overlapped(logits.device)
    _best_of_block[(batch * width, blocks)](
        logits, top, index, lse, vocab, BEST=best, BLOCK=BLOCK, num_warps=8, **overlap
    )
    kept = torch.empty((batch, keep), device=logits.device, dtype=torch.float32)
    parent = torch.empty((batch, keep), device=logits.device, dtype=torch.long)
    token = torch.empty((batch, keep), device=logits.device, dtype=torch.long)
    _best_of_beams[(batch,)](
        top,
        index,
        lse,
        score,
        kept,
        parent,
        token,
        WIDTH=width,
        BLOCKS=blocks,
        BEST=best,
        KEEP=keep,
        PADDED_BLOCKS=triton.next_power_of_2(blocks),
        PADDED=triton.next_power_of_2(width * blocks * best),
        num_warps=4,
        **overlap,
    )
    return kept, parent, token


@triton.jit
def _best_of_block(
    logit_ptr,
    top_ptr,
    index_ptr,
    lse_ptr,
    vocab,
    BEST: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    blocks = tl.num_programs(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logit_ptr + row * vocab + at, mask=at < vocab, other=float("-inf"))
    logit = logit.to(tl.float32)
    highest = tl.max(logit, 0)
    total = tl.sum(tl.exp(logit - highest), 0)
    line = row * blocks + block
    tl.store(lse_ptr + line, highest + tl.log(total))
    for i in range(BEST):
        value, where = tl.max(logit, 0, return_indices=True)
        tl.store(top_ptr + line * BEST + i, value)
        tl.store(index_ptr + line * BEST + i, block * BLOCK + where)
        logit = tl.where(tl.arange(0, BLOCK) == where, float("-inf"), logit)


@triton.jit
def _best_of_beams(
    top_ptr,
    index_ptr,
    lse_ptr,
    score_ptr,
    kept_ptr,
    parent_ptr,
    token_ptr,
    WIDTH: tl.constexpr,
    BLOCKS: tl.constexpr,
    BEST: tl.constexpr,
    KEEP: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
    PADDED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    begin(OVERLAP)
    wait(OVERLAP)
    sequence = tl.program_id(0).to(tl.int64)
    candidate = tl.arange(0, PADDED)
    real = candidate < WIDTH * BLOCKS * BEST
    beam = candidate // (BLOCKS * BEST)
    value = tl.load(
        top_ptr + sequence * (WIDTH * BLOCKS * BEST) + candidate, mask=real, other=float("-inf")
    )
    norm = tl.zeros((PADDED,), tl.float32)
    for w in tl.static_range(WIDTH):
        line = (sequence * WIDTH + w) * BLOCKS
        part = tl.arange(0, PADDED_BLOCKS)
        lse = tl.load(lse_ptr + line + part, mask=part < BLOCKS, other=float("-inf"))
        highest = tl.max(lse, 0)
        whole = highest + tl.log(tl.sum(tl.exp(lse - highest), 0))
        offset = tl.load(score_ptr + sequence * WIDTH + w) - whole
        norm = tl.where(beam == w, offset, norm)
    value = tl.where(real, value + norm, float("-inf"))
    for i in range(KEEP):
        best, where = tl.max(value, 0, return_indices=True)
        tl.store(kept_ptr + sequence * KEEP + i, best)
        tl.store(parent_ptr + sequence * KEEP + i, (where // (BLOCKS * BEST)).to(tl.int64))
        chosen = tl.load(index_ptr + sequence * (WIDTH * BLOCKS * BEST) + where)
        tl.store(token_ptr + sequence * KEEP + i, chosen.to(tl.int64))
        value = tl.where(candidate == where, float("-inf"), value)
