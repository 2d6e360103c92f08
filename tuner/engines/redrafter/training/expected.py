"""What a step commits on average when the base model samples, computed instead of drawn.

Verification accepts a drafted token when the base model's own draw equals it. So a step accepts
node n of its tree with the product of the base model's probabilities along the path to n, and the
expected number of accepted tokens is the sum of these products over the tree; the base model's own
token comes on top. The probabilities need the base model to read the trees, for which the texts'
keys and values are kept while one text is dealt with.

The beams of all draft lengths of one width make one tree: every depth of the search adds its beams
as nodes, and a length uses those that its own beams descend from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.beam import Grown, grow
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import Answers
from tuner.engines.redrafter.training.forward import causal_attention
from tuner.engines.redrafter.training.reach import Steps

_LOGITS_AT_ONCE = 2**27


@dataclass(frozen=True, slots=True)
class Text:
    """One answer with its prompt, [L], and the keys and values of every layer, [L, heads, dim]."""

    tokens: Tensor
    keys: list[Tensor]
    values: list[Tensor]


@dataclass(frozen=True, slots=True)
class Draws:
    """How the base model samples, and where an answer ends."""

    temperature: float
    stop_token_ids: frozenset[int]
    max_new_tokens: int


@torch.no_grad()
def expected_steps(
    base: Llama,
    drafter: Drafter,
    answers: Answers,
    beam_width: int,
    taken: Mapping[int, Steps],
    draws: Draws,
) -> dict[int, Tensor]:
    """Return what each of the steps `taken` by draft length commits on average.

    Returns:
        [N, A] by draft length, 0 where no step begins.
    """
    longest = max(taken)
    size = max(1, _LOGITS_AT_ONCE // ((1 + beam_width * longest) * base.config.vocab_size))
    found = {length: torch.zeros(steps.begins.shape) for length, steps in taken.items()}
    for row in range(len(answers.categories)):
        begins = torch.stack([steps.begins[row] for steps in taken.values()]).any(0)
        offsets = begins.nonzero().flatten().to(answers.tokens.device)
        if not len(offsets):
            continue
        text = read_text(base, answers.tokens[row, : int(answers.last[row]) + 1])
        for part in offsets.split(size):
            at = int(answers.start[row]) + part
            grown = list(
                grow(
                    drafter, base.embed_tokens, text.tokens[at + 1], answers.contexts[row, part],
                    beam_width, longest,
                )
            )  # fmt: skip
            chances = path_chances(base, text, at, grown, draws)
            room = draws.max_new_tokens - 2 - part  # tokens that may follow the step's first
            for length in taken:
                counted = sum_of_tree(grown[:length], chances[:length], room)
                found[length][row, part.cpu()] = 1 + counted.cpu()
    return {length: found[length] * taken[length].begins for length in taken}


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


def path_chances(
    base: Llama, text: Text, at: Tensor, grown: list[Grown], draws: Draws
) -> list[Tensor]:
    """Return the probability that a draw follows the path to a node, by depth, [P, W'] each.

    A stop token gains nothing by being drafted: its step ends with it either way. So its node, and
    what comes after it, has probability 0.

    Args:
        base: the base model.
        text: the text of the positions.
        at: [P] positions whose next token is the root of a tree.
        grown: the search from there.
        draws: how the base model samples.
    """
    tree = Tree.of(text.tokens[at + 1], grown)
    logits = _read_trees(base, text, at, tree).div_(draws.temperature)
    total = logits.logsumexp(-1)
    stops = torch.tensor(sorted(draws.stop_token_ids), dtype=torch.long, device=at.device)
    position = torch.arange(len(at), device=at.device)[:, None]
    chance = torch.ones(len(at), 1, device=at.device)
    chances = []
    for above, beams in zip(tree.above, grown, strict=True):
        drawn = (logits[position, above, beams.token] - total.gather(1, above)).exp()
        drawn = drawn * ~torch.isin(beams.token, stops)
        chance = chance.gather(1, beams.parent) * drawn
        chances.append(chance)
    return chances


def sum_of_tree(grown: list[Grown], chances: list[Tensor], room: Tensor) -> Tensor:
    """Return the expected accepted tokens [P] of the tree that the last beams of `grown` make.

    `room` [P] is how deep a node may lie and still be committed.
    """
    total = torch.zeros(len(room), device=room.device)
    used = torch.ones_like(chances[-1], dtype=torch.bool)
    for depth in range(len(grown), 0, -1):
        fits = (depth <= room)[:, None]
        total += (chances[depth - 1] * (used & fits)).sum(1)
        if depth > 1:
            above = torch.zeros_like(chances[depth - 2])
            used = above.scatter_add(1, grown[depth - 1].parent, used.float()) > 0
    return total


@dataclass(frozen=True, slots=True)
class Tree:
    """The beams of every depth as nodes: the root, then depth by depth. n of them a position."""

    tokens: Tensor  # [P, n]
    depth: Tensor  # [n]
    sees: Tensor  # [P, n, n] bool: node i reads node j, an ancestor or itself
    above: list[Tensor]  # by depth, [P, W'] each: the node that a beam continues

    @classmethod
    def of(cls, true_token: Tensor, grown: list[Grown]) -> Tree:
        """Lay out the search that began with `true_token` [P]."""
        tokens = torch.cat([true_token[:, None], *(beams.token for beams in grown)], dim=1)
        widths = [1, *(beams.token.shape[1] for beams in grown)]
        device, nodes = tokens.device, tokens.shape[1]
        depth = torch.repeat_interleave(torch.arange(len(widths)), torch.tensor(widths)).to(device)
        sees = torch.eye(nodes, dtype=torch.bool, device=device).repeat(len(tokens), 1, 1)
        first, above = 0, []
        for width, beams in zip(widths, grown, strict=False):
            above.append(first + beams.parent)
            first += width
            rows = slice(first, first + beams.token.shape[1])
            sees[:, rows] |= sees.gather(1, above[-1].unsqueeze(-1).expand(-1, -1, nodes))
        return cls(tokens, depth, sees, above)


def _read_trees(base: Llama, text: Text, at: Tensor, tree: Tree) -> Tensor:
    """Return the base model's logits at every node, [P, n, vocab] in fp32."""
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
