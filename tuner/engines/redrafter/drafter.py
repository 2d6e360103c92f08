"""The recurrent drafter: a small Elman network conditioned on the base model's hidden state.

    s_0 = 0;  s_t = SiLU(Wr emb(g_{t-1}) + Ur s_{t-1} + b + d)
    x_t = p + Ps s_t;  x <- x + SiLU(R_k x + r_k) for every block;  logits = H x_t

`c` is the base model's hidden state of the last accepted token and constant while drafting, so what
depends on it is computed once a step: `p = Pc c`, `d = 0` in the released layout. A drafter with a
`context_width` spends more there, where it is cheapest: a small residual network reads `c` and
emb(g_0) and yields both p and d. `g_0` is the token that the base model already chose. Only the
input embedding is shared with the base model, frozen. The head covers the `draft_vocab_size` most
frequent tokens: proposals outside it are impossible, which costs acceptance and never correctness.

Source: Zhang et al., Recurrent Drafter (arXiv 2403.09919) and the released checkpoint layout, with
`exit_dim` smaller than twice the hidden size and its input projection split into its two halves.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Shape of a drafter and what it was trained for."""

    hidden_size: int
    vocab_size: int
    exit_dim: int
    num_blocks: int
    draft_vocab_size: int
    trained_draft_len: int
    context_layers: tuple[int, ...] = ()
    context_width: int = 0  # 0: the context is projected, nothing more
    num_context_blocks: int = 0

    @property
    def context_size(self) -> int:
        """Width of the context that the base model hands over."""
        return self.hidden_size * (1 + len(self.context_layers))

    def save(self, folder: Path) -> None:
        """Write `config.json`."""
        text = json.dumps({"model_type": "redrafter_drafter", **asdict(self)}, indent=2)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")


class Drafter(nn.Module):
    """The network. `draft_vocab` maps its outputs to token ids, most frequent first."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        hidden, exit_dim = config.hidden_size, config.exit_dim
        self.rnn_w = nn.Linear(hidden, hidden, bias=False)
        self.rnn_u = nn.Linear(hidden, hidden)
        wide = config.context_width
        self.context_in = nn.Linear(config.context_size + hidden, wide) if wide else None
        self.context_blocks = nn.ModuleList(
            nn.Linear(wide, wide) for _ in range(config.num_context_blocks)
        )
        self.context_proj = (
            nn.Linear(wide, exit_dim + hidden) if wide else nn.Linear(config.context_size, exit_dim)
        )
        self.state_proj = nn.Linear(hidden, exit_dim, bias=False)
        self.blocks = nn.ModuleList(nn.Linear(exit_dim, exit_dim) for _ in range(config.num_blocks))
        self.head = nn.Linear(exit_dim, config.draft_vocab_size, bias=False)
        self.draft_vocab: Tensor
        self.register_buffer("draft_vocab", torch.arange(config.draft_vocab_size))

    def start(self, context: Tensor, true_embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Do what is done once a step: [..., context_size] and [..., hidden].

        Returns:
            `p` [..., exit_dim] for `exit` and `d` [..., hidden] for `next_state`.
        """
        if self.context_in is None:
            return self.context_proj(context), torch.zeros_like(true_embedding)
        x = self.context_in(torch.cat((context, true_embedding), dim=-1))
        for block in self.context_blocks:
            x = x + F.silu(block(x))
        p, d = self.context_proj(x).split((self.config.exit_dim, self.config.hidden_size), dim=-1)
        return p, d

    def next_state(self, embedding: Tensor, state: Tensor, d: Tensor) -> Tensor:
        """Feed the embedding of one more token; all [..., hidden]. The first state is zero."""
        return F.silu(self.rnn_w(embedding) + self.rnn_u(state) + d)

    def exit(self, p: Tensor, state: Tensor) -> Tensor:
        """Return what the head reads, [..., exit_dim]."""
        x = p + self.state_proj(state)
        for block in self.blocks:
            x = x + F.silu(block(x))
        return x

    def logits(self, p: Tensor, state: Tensor) -> Tensor:
        """Return logits over the draft vocabulary, [..., draft_vocab_size]."""
        return self.head(self.exit(p, state))
