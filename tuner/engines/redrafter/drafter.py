"""The recurrent drafter: a small Elman network conditioned on the base model's hidden state.

    s_0 = 0;  s_t = SiLU(Wr emb(g_{t-1}) + Ur s_{t-1} + b + d)
    x_t = p + Ps s_t;  x <- x + SiLU(R_k x + r_k) for every block;  logits = H x_t

`c` is the base model's hidden state of the last accepted token and constant while drafting, so what
depends on it is computed once a step: `p = Pc c`, `d = 0` in the plain form. A drafter with a
`context_width` spends more there, where it is cheapest: a small residual network reads `c` and
emb(g_0) and yields both p and d. `g_0` is the token that the base model already chose. Only the
input embedding is shared with the base model, frozen. The head covers the `draft_vocab_size` most
frequent tokens: proposals outside it are impossible, which costs acceptance and never correctness.

The plain form is what Apple's checkpoints hold (`apple_layout` reads and writes them). Three
settings name what differs between the paper, its released code and what is trained here: the first
state, whether `x` is a projection or just `c` beside `s_t`, and among how many tokens a beam's
probability is normalised.

Source: Zhang et al., Recurrent Drafter (arXiv 2403.09919) and the released checkpoint layout, with
`exit_dim` smaller than twice the hidden size and its input projection split into its two halves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engines.redrafter.dense import Linear, takes_kernels

RECURRENCES = ("elman", "sum", "gated")
FIRST_STEPS = ("zero_state", "embedding")
_MASKED_LOGIT = -50_000.0


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """Shape of a drafter and what it was trained for.

    Attributes:
        recurrence: "elman"; "sum": s_t = s_{t-1} + emb(g_{t-1}), without weights; or "gated":
            s_t = z s_{t-1} + (1 - z) times Elman's state, z = sigmoid(Wz emb(g_{t-1}) + Uz s_{t-1}
            + b_z), an extension of the released layout.
        state_size: Width of the state; 0: `hidden_size`, as in the released layout.
        first_step: "zero_state", the released code's s_0 = 0, or "embedding", the paper's
            s_1 = emb(g_0).
        input_projection: False: x = (c, s_t), so `exit_dim` is twice `hidden_size`.
        scored_tokens: A beam's probability is normalised among its so many likeliest next tokens,
            the released code's 50; 0: among all.
        tokenizer_sha256: Fingerprint of the tokenizer it was trained with; None: not known.

    Raises:
        ValueError: settings that contradict each other; names the field.
    """

    hidden_size: int
    vocab_size: int
    exit_dim: int
    num_blocks: int
    draft_vocab_size: int
    trained_draft_len: int
    context_layers: tuple[int, ...] = ()
    context_width: int = 0  # 0: the context is projected, nothing more
    num_context_blocks: int = 0
    recurrence: str = "elman"
    first_step: str = "zero_state"
    input_projection: bool = True
    scored_tokens: int = 0
    tokenizer_sha256: str | None = None
    state_size: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("recurrence", RECURRENCES), ("first_step", FIRST_STEPS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not one of {allowed}")
        if self.state_size and (self.recurrence == "sum" or self.first_step == "embedding"):
            raise ValueError("state_size must be 0 where the state is made of embeddings")
        if self.input_projection:
            return
        if self.exit_dim != 2 * self.hidden_size:
            raise ValueError(
                f"exit_dim is {self.exit_dim}: without input_projection it is twice hidden_size, "
                f"{2 * self.hidden_size}"
            )
        if self.context_layers or self.context_width or self.state_size:
            raise ValueError("context_layers, context_width and state_size need input_projection")

    @property
    def context_size(self) -> int:
        """Width of the context that the base model hands over."""
        return self.hidden_size * (1 + len(self.context_layers))

    @property
    def state_width(self) -> int:
        """Width of the state."""
        return self.state_size or self.hidden_size

    def to_json(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        return {"model_type": "redrafter_drafter", **asdict(self)}


class Drafter(nn.Module):
    """The network. `draft_vocab` maps its outputs to token ids, most frequent first."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        hidden, exit_dim, state = config.hidden_size, config.exit_dim, config.state_width
        if config.recurrence != "sum":
            self.rnn_w = Linear(hidden, state, bias=False)
            self.rnn_u = Linear(state, state)
        if config.recurrence == "gated":
            self.gate_w = Linear(hidden, state, bias=False)
            self.gate_u = Linear(state, state)
        wide = config.context_width
        self.context_in = Linear(config.context_size + hidden, wide) if wide else None
        self.context_blocks = nn.ModuleList(
            Linear(wide, wide) for _ in range(config.num_context_blocks)
        )
        if config.input_projection:
            self.context_proj = (
                Linear(wide, exit_dim + state) if wide else Linear(config.context_size, exit_dim)
            )
            self.state_proj = Linear(state, exit_dim, bias=False)
        self.blocks = nn.ModuleList(Linear(exit_dim, exit_dim) for _ in range(config.num_blocks))
        self.head = Linear(exit_dim, config.draft_vocab_size, bias=False)
        self.draft_vocab: Tensor
        self.register_buffer("draft_vocab", torch.arange(config.draft_vocab_size))

    def start(self, context: Tensor, true_embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Do what is done once a step: [..., context_size] and [..., hidden].

        Returns:
            `p` [..., exit_dim] for `exit` and `d` [..., state_width] for `next_state`.
        """
        if not self.config.input_projection:
            return F.pad(context, (0, self.config.hidden_size)), torch.zeros_like(true_embedding)
        if self.context_in is None:
            d = true_embedding.new_zeros(*true_embedding.shape[:-1], self.config.state_width)
            return self.context_proj(context), d
        x = self.context_in(torch.cat((context, true_embedding), dim=-1))
        for block in self.context_blocks:
            x = _add_silu(x, block(x))
        p, d = self.context_proj(x).split((self.config.exit_dim, self.config.state_width), dim=-1)
        return p, d

    def next_state(self, embedding: Tensor, state: Tensor, d: Tensor) -> Tensor:
        """Feed the embedding [..., hidden] of one more token; the rest is [..., state_width].

        The first state is zero.
        """
        if self.config.recurrence == "sum":
            return embedding + state + d
        following = _silu_of_sum(self.rnn_w(embedding), self.rnn_u(state), d)
        if self.config.recurrence == "gated":
            keep = torch.sigmoid(self.gate_w(embedding) + self.gate_u(state))
            following = keep * state + (1 - keep) * following
        if self.config.first_step == "zero_state":
            return following
        # NOTE: a state of exact zeros is the one that drafting starts from.
        return torch.where((state == 0).all(-1, keepdim=True), embedding, following)

    def exit(self, p: Tensor, state: Tensor) -> Tensor:
        """Return what the head reads, [..., exit_dim]."""
        if self.config.input_projection:
            x = p + self.state_proj(state)
        else:
            x = p + F.pad(state, (self.config.hidden_size, 0))
        for block in self.blocks:
            x = _add_silu(x, block(x))
        return x

    def logits(self, p: Tensor, state: Tensor) -> Tensor:
        """Return logits over the draft vocabulary, [..., draft_vocab_size].

        With `scored_tokens` the rest is masked, and the best is moved to 0 so that the mask lies
        far below every logit.
        """
        logits = self.head(self.exit(p, state))
        if not 0 < self.config.scored_tokens < logits.shape[-1]:
            return logits
        best = logits.topk(self.config.scored_tokens, dim=-1).values
        unscored = logits < best[..., -1:]
        return (logits - best[..., :1]).masked_fill(unscored, _MASKED_LOGIT)


def _add_silu(x: Tensor, y: Tensor) -> Tensor:
    """Return x + silu(y)."""
    if not takes_kernels(x):
        return x + F.silu(y)
    from tuner.engines.redrafter.kernels.silu_add import add_silu

    return add_silu(x, y)


def _silu_of_sum(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
    """Return silu(x + y + d), where d may be one for all beams."""
    if not takes_kernels(x) or x.dim() != 3:
        return F.silu(x + y + d)
    from tuner.engines.redrafter.kernels.silu_add import silu_of_sum

    return silu_of_sum(x, y, d)
