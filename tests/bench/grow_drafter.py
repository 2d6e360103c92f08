"""Grow a drafter with its base model, without changing what it proposes.

Its inputs keep their numbers in the first channels, but for the tapped residual streams: a norm
without weights divides by a root of a mean square that zeros have made r times as large, so what
reads them is times sqrt(r). Whatever old outputs read of new channels is zero; what new outputs
read is random, and nobody reads them. `draft_vocab` stays, unless a larger one is asked for: new
rows of the head read one new channel that a bias holds at 1, and are so unlikely that no
probability changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig

SPREAD = 0.02
_UNLIKELY = -1000.0
Segments = Sequence[tuple[int, int, float]]
"""Old size, new size and factor of every part of an axis, in order."""


class Grown:
    """Makes tensors on a device in a dtype; the same for the same seed."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int) -> None:
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator(device).manual_seed(seed)

    def random(self, *shape: int) -> Tensor:
        """Small normal numbers."""
        empty = torch.empty(shape, device=self.device, dtype=self.dtype)
        return empty.normal_(0.0, SPREAD, generator=self.generator)

    def none(self, *shape: int) -> Tensor:
        """Zeros."""
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def zeros(self, old: Tensor, rows: int, columns: int) -> Tensor:
        """Pad `old` with zeros to [rows, columns]."""
        made = self.none(rows, columns)
        made[: old.shape[0], : old.shape[1]] = old.to(self.device, self.dtype)
        return made

    def put(self, old: Tensor, new: Tensor, rows: Tensor, columns: Tensor) -> None:
        """Give the rows `rows` of `new` the weights `old` at `columns` and zeros elsewhere."""
        full = torch.zeros(len(rows), new.shape[1], device=self.device, dtype=self.dtype)
        full[:, columns.to(self.device)] = old.to(self.device, self.dtype)
        new[rows.to(self.device)] = full

    def matrix(self, old: Tensor, rows: Segments, columns: Segments) -> Tensor:
        """Grow a weight [out, in] along both axes."""
        made = self.random(sum(new for _, new, _ in rows), sum(new for _, new, _ in columns))
        factors = torch.cat([torch.full((size,), factor) for size, _, factor in columns])
        self.put(old.float().cpu() * factors, made, _indices(rows), _indices(columns))
        return made

    def bias(self, old: Tensor, rows: Segments) -> Tensor:
        """Grow a bias [out]; new outputs have none."""
        made = self.none(sum(new for _, new, _ in rows))
        made[_indices(rows).to(self.device)] = old.to(self.device, self.dtype)
        return made


def grow_drafter(
    drafter: Drafter,
    base: LlamaConfig,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 1,
    draft_vocab_size: int | None = None,
) -> Drafter:
    """Return a drafter for the grown `base` that proposes what `drafter` proposes.

    Its own widths grow as the hidden size does, rounded up to multiples of 128.
    """
    old = drafter.config
    new = _grown_config(old, base, draft_vocab_size or old.draft_vocab_size)
    axes, grown = _axes(old, new), Grown(device, dtype, seed)
    state: dict[str, Tensor] = {}
    for name, tensor in drafter.state_dict().items():
        layer = ".".join(part for part in name.split(".")[:-1] if not part.isdigit())
        if name == "draft_vocab":
            state[name] = _grown_vocabulary(tensor, new).to(device)
            continue
        rows, columns = axes[layer]
        made = grown.matrix(tensor, rows, columns) if tensor.dim() == 2 else None
        state[name] = grown.bias(tensor, rows) if made is None else made
    if new.draft_vocab_size > old.draft_vocab_size:
        _silence_new_tokens(state, old)
    with torch.device("meta"):
        result = Drafter(new)
    result.load_state_dict(state, assign=True)
    return result.requires_grad_(False).eval()


def _grown_config(old: DrafterConfig, base: LlamaConfig, draft_vocab_size: int) -> DrafterConfig:
    def wider(size: int) -> int:
        return -(-size * base.hidden_size // old.hidden_size // 128) * 128 if size else 0

    return replace(
        old,
        hidden_size=base.hidden_size,
        vocab_size=base.vocab_size,
        exit_dim=wider(old.exit_dim) if old.input_projection else 2 * base.hidden_size,
        context_width=wider(old.context_width),
        state_size=wider(old.state_size),
        draft_vocab_size=draft_vocab_size,
    )


def _axes(old: DrafterConfig, new: DrafterConfig) -> dict[str, tuple[Segments, Segments]]:
    """Rows and columns of every layer, by name."""
    hidden = [(old.hidden_size, new.hidden_size, 1.0)]
    tap = (old.hidden_size, new.hidden_size, math.sqrt(old.hidden_size / new.hidden_size))
    context = [tap] * len(old.context_layers) + hidden
    state = [(old.state_width, new.state_width, 1.0)]
    wide = [(old.context_width, new.context_width, 1.0)]
    leaving = [(old.exit_dim, new.exit_dim, 1.0)] if old.input_projection else hidden * 2
    network = bool(old.context_width)
    return {
        "rnn_w": (state, hidden),
        "rnn_u": (state, state),
        "gate_w": (state, hidden),
        "gate_u": (state, state),
        "context_in": (wide, context + hidden),
        "context_blocks": (wide, wide),
        "context_proj": (leaving + state, wide) if network else (leaving, context),
        "state_proj": (leaving, state),
        "blocks": (leaving, leaving),
        "head": ([(old.draft_vocab_size, new.draft_vocab_size, 1.0)], leaving),
    }


def _grown_vocabulary(draft_vocab: Tensor, new: DrafterConfig) -> Tensor:
    """Add the lowest tokens that are not in it yet."""
    missing = torch.ones(new.vocab_size, dtype=torch.bool)
    missing[draft_vocab.long()] = False
    extra = missing.nonzero().squeeze(1)[: new.draft_vocab_size - len(draft_vocab)]
    return torch.cat((draft_vocab.long(), extra))


def _silence_new_tokens(state: dict[str, Tensor], old: DrafterConfig) -> None:
    """Hold one new channel of what the head reads at 1 and let new tokens read it alone."""
    if not old.input_projection or state["head.weight"].shape[1] == old.exit_dim:
        raise ValueError("a larger draft_vocab_size needs input_projection and a larger exit_dim")
    channel = old.exit_dim
    state["context_proj.weight"][channel] = 0.0
    state["context_proj.bias"][channel] = 1.0
    state["state_proj.weight"][channel] = 0.0
    for name in [name for name in state if name.startswith("blocks.")]:
        state[name][channel] = 0.0
    state["head.weight"][old.draft_vocab_size :] = 0.0
    state["head.weight"][old.draft_vocab_size :, channel] = _UNLIKELY


def _indices(segments: Segments) -> Tensor:
    starts, start = [], 0
    for size, new, _ in segments:
        starts.append(torch.arange(size) + start)
        start += new
    return torch.cat(starts)
