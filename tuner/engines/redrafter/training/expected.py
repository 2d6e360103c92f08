"""What a step commits on average when the base model samples, computed instead of drawn.

Verification accepts a drafted token when the base model's own draw equals it. So a step accepts
node n of its tree with the product of the base model's probabilities along the path to n, and the
expected number of accepted tokens is the sum of these products over the tree; the base model's own
token comes on top. The probabilities need the base model to read the trees, for which the texts'
keys and values are kept while one text is dealt with.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.drafters.walk import Steps
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import Answers
from tuner.engines.redrafter.training.batch_decode import Decoding
from tuner.engines.redrafter.training.forward import causal_attention
from tuner.engines.redrafter.tree import DraftTree, build_tree

_LOGITS_AT_ONCE = 2**27
Cell = TypeVar("Cell", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Text:
    """One answer with its prompt, [L], and the keys and values of every layer, [L, heads, dim]."""

    tokens: Tensor
    keys: list[Tensor]
    values: list[Tensor]


@torch.no_grad()
def expected_tokens(
    base: Llama, answers: Answers, taken: Mapping[Cell, Steps], draws: Decoding
) -> dict[Cell, Tensor]:
    """Return what every step [S] of every cell commits on average; each text is read once."""
    found = {cell: torch.zeros(len(steps.row)) for cell, steps in taken.items()}
    for row in answers.drafted.nonzero().flatten().tolist():
        text = read_text(base, answers.tokens[row, : int(answers.last[row]) + 1])
        for cell, steps in taken.items():
            width, length = steps.beams.shape[1:]
            nodes = 1 + width * (length - 1)
            size = max(1, _LOGITS_AT_ONCE // (nodes * base.config.vocab_size))
            for part in (steps.row == row).nonzero().flatten().split(size):
                offset = steps.offset[part].to(text.tokens.device)
                tree = build_tree(steps.beams[part].long().to(text.tokens.device))
                chances = path_chances(base, text, answers.start[row] + offset, tree, draws)
                room = draws.max_new_tokens - 2 - offset  # tokens that may follow the step's first
                fits = tree.depth <= room[:, None]
                found[cell][part] = 1 + (chances * fits).sum(1).cpu()
    return found


def read_text(base: Llama, tokens: Tensor) -> Text:
    """Read `tokens` [L], keeping keys and values."""
    keys: list[Tensor] = []
    values: list[Tensor] = []

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys.append(k)
        values.append(v)
        return causal_attention(q, k, v, 1)

    base(tokens, torch.arange(len(tokens), device=tokens.device), attend)
    return Text(tokens, keys, values)


def path_chances(base: Llama, text: Text, at: Tensor, tree: DraftTree, draws: Decoding) -> Tensor:
    """Return the probability that a draw follows the path to a node, [P, N]; 0 for the root.

    A stop token gains nothing by being drafted: its step ends with it either way. So its node, and
    what comes after it, has probability 0.

    Args:
        base: the base model.
        text: the text of the positions.
        at: [P] positions whose next token is the root of a tree.
        tree: what was drafted from there.
        draws: how the base model samples.
    """
    logits = _read_trees(base, text, at, tree).div_(draws.temperature)
    total = logits.logsumexp(-1)
    token, above = tree.beams[..., 1:], tree.node_of[..., :-1]
    position = torch.arange(len(at), device=at.device)[:, None, None]
    drawn = (logits[position, above, token] - total[position, above]).exp()
    stops = torch.tensor(sorted(draws.stop_token_ids), dtype=torch.long, device=at.device)
    along = (drawn * ~torch.isin(token, stops)).cumprod(-1)
    return torch.zeros_like(total).scatter(1, tree.node_of[..., 1:].flatten(1), along.flatten(1))


def _read_trees(base: Llama, text: Text, at: Tensor, tree: DraftTree) -> Tensor:
    """Return the base model's logits at every node, [P, N, vocab] in fp32."""
    count, nodes = tree.tokens.shape
    columns = torch.arange(len(text.tokens), device=at.device)
    context = (columns <= at[:, None]).unsqueeze(1).expand(-1, nodes, -1)
    mask = torch.cat((context, tree.sees), dim=2).unsqueeze(1)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.unflatten(0, (count, nodes)) for x in (q, k, v))
        keys, values = (
            torch.cat((kept.expand(count, *kept.shape), new), dim=1).transpose(1, 2)
            for kept, new in ((text.keys[layer], k), (text.values[layer], v))
        )
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=True
        )
        return out.transpose(1, 2).flatten(0, 1)

    positions = (at + 1)[:, None] + tree.depth
    hidden, _ = base(tree.tokens.flatten(), positions.flatten(), attend)
    return base.logits(hidden).float().unflatten(0, (count, nodes))
