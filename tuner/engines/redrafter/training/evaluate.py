"""What a drafter is worth: exact acceptance at temperature 0 for a grid of beam widths and lengths.

The base model writes its greedy answers once. For each (beam_width, draft_len) the drafter is then
walked through them exactly as in serving: draft, accept what agrees, move on past the accepted
drafts and the base model's own next token. All answers walk side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from profiles.statistics import repeats_itself
from tuner.engines.redrafter.beam import beam_search
from tuner.engines.redrafter.checkpoint import load_drafter
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.linear import apply_compute, compute_path
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen, read_rows
from tuner.errors import BadInput
from tuner.workloads.tokenizer import HFTokenizer

SHORT = 16
GRID = ((1, 1), (1, 3), (1, 4), (2, 3), (4, 4), (8, 5), (16, 5))
_READ_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class AcceptanceCell:
    """Acceptance of one (beam_width, draft_len) over one category; "all" is every prompt."""

    category: str
    beam_width: int
    draft_len: int
    prompts: int
    steps: int
    committed_tokens: int

    @property
    def acceptance_length(self) -> float | None:
        """Committed tokens a step, the first token of an answer (from its prompt) aside."""
        return self.committed_tokens / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class EvalReport:
    """`everything` counts every answer; `kept` leaves out what repeats itself or is short."""

    kept: list[AcceptanceCell]
    everything: list[AcceptanceCell]
    prompts: int
    repeating: int
    short: int


@dataclass(frozen=True, slots=True)
class Answers:
    """Greedy answers [N, L] after their prompts, and the drafter's context at each position.

    `contexts[i, j]` belongs to position `start[i] + j`; `start` is the last prompt token, `last`
    the answer's last token.
    """

    tokens: Tensor
    contexts: Tensor
    start: Tensor
    last: Tensor
    categories: list[str]
    repeating: Tensor
    short: Tensor


def evaluate_drafter(
    model_dir: Path,
    drafter_dir: Path,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    grid: Sequence[tuple[int, int]] = GRID,
    max_new_tokens: int = 256,
    device: str = "cpu",
) -> EvalReport:
    """Measure a drafter directory on prompts (token ids by category).

    Raises:
        BadInput: no prompts, an empty prompt, a grid cell that is not (>= 1, >= 1), or a drafter
            that does not fit the model.
    """
    _check(prompts, grid)
    where = torch.device(device)
    longest = max(len(p) for group in prompts.values() for p in group)
    base = load_frozen(model_dir, where, longest + max_new_tokens)
    drafter = load_drafter(drafter_dir, base.config)
    apply_compute(drafter, compute_path("bf16" if where.type == "cuda" else "fp32", where))
    stops = HFTokenizer(model_dir).stop_token_ids
    answers = write_answers(base, prompts, max_new_tokens, stops, drafter.config.context_layers)
    return measure(base, drafter, answers, grid)


def _check(prompts: Mapping[str, Sequence[Sequence[int]]], grid: Sequence[tuple[int, int]]) -> None:
    if not any(prompts.values()):
        raise BadInput("prompts", {k: len(v) for k, v in prompts.items()}, "give one at least")
    if empty := [name for name, group in prompts.items() if any(not p for p in group)]:
        raise BadInput("prompts", empty, "holds a prompt without tokens")
    if bad := [cell for cell in grid if min(cell) < 1]:
        raise BadInput("grid", bad, "beam_width and draft_len must be at least 1")


@torch.no_grad()
def write_answers(
    base: Llama,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    max_new_tokens: int,
    stop_token_ids: frozenset[int],
    context_layers: tuple[int, ...],
) -> Answers:
    """Let the base model answer greedily."""
    flat = [list(prompt) for group in prompts.values() for prompt in group]
    categories = [name for name, group in prompts.items() for _ in group]
    out = decode(base, flat, Decoding(max_new_tokens, stop_token_ids)).tolist()
    answers = [[token for token in row if token >= 0] for row in out]
    return prepare_answers(base, flat, answers, categories, context_layers)


@torch.no_grad()
def prepare_answers(
    base: Llama,
    prompts: Sequence[list[int]],
    answers: Sequence[list[int]],
    categories: list[str],
    context_layers: tuple[int, ...],
) -> Answers:
    """Read prompts with their answers once and keep the contexts of the answers' positions."""
    device = base.norm.weight.device
    rows = [torch.tensor([*p, *a]) for p, a in zip(prompts, answers, strict=True)]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    start = torch.tensor([len(p) - 1 for p in prompts], device=device)
    last = torch.tensor([len(row) - 1 for row in rows], device=device)
    width = int((last - start).max())
    step = max(1, _READ_TOKENS // tokens.shape[1])
    parts = []
    for begin in range(0, len(tokens), step):
        part = slice(begin, begin + step)
        _, context = read_rows(base, tokens[part], context_layers)
        at = start[part, None] + torch.arange(width, device=device)
        at = at.clamp(max=tokens.shape[1] - 1)
        parts.append(context.gather(1, at.unsqueeze(-1).expand(-1, -1, context.shape[-1])))
    return Answers(
        tokens,
        torch.cat(parts),
        start,
        last,
        categories,
        torch.tensor([repeats_itself(a) for a in answers], device=device),
        torch.tensor([len(a) < SHORT for a in answers], device=device),
    )


@torch.no_grad()
def measure(
    base: Llama, drafter: Drafter, answers: Answers, grid: Sequence[tuple[int, int]] = GRID
) -> EvalReport:
    """Walk the answers for every cell of the grid."""
    kept: list[AcceptanceCell] = []
    everything: list[AcceptanceCell] = []
    good = ~(answers.repeating | answers.short)
    for beam_width, draft_len in grid:
        steps, committed = walk(base, drafter, answers, beam_width, draft_len)
        for cells, chosen in ((kept, good), (everything, torch.ones_like(good))):
            for category in ("all", *dict.fromkeys(answers.categories)):
                of = [category in ("all", name) for name in answers.categories]
                rows = chosen & torch.tensor(of, device=chosen.device)
                sums = (int(x[rows].sum()) for x in (rows.long(), steps, committed))
                cells.append(AcceptanceCell(category, beam_width, draft_len, *sums))
    return EvalReport(
        kept, everything, len(good), int(answers.repeating.sum()), int(answers.short.sum())
    )


def walk(
    base: Llama, drafter: Drafter, answers: Answers, beam_width: int, draft_len: int
) -> tuple[Tensor, Tensor]:
    """Return the steps and committed tokens of every answer, [N] each."""
    position = answers.start.clone()  # the true token is the one after it
    steps, committed = torch.zeros_like(position), torch.zeros_like(position)
    ahead = torch.arange(1, draft_len + 2, device=position.device)
    while len(rows := (position + 1 < answers.last).nonzero().flatten()):
        at, last = position[rows], answers.last[rows]
        columns = at[:, None] + ahead
        truth = answers.tokens[rows[:, None], columns.clamp(max=answers.tokens.shape[1] - 1)]
        truth = truth.masked_fill(columns > last[:, None], -1)
        context = answers.contexts[rows, at - answers.start[rows]]
        beams = beam_search(drafter, base.embed_tokens, truth[:, 0], context, beam_width, draft_len)
        agreed = (beams == truth[:, None]).long().cumprod(-1).sum(-1).amax(1)  # root included
        steps[rows] += 1
        committed[rows] += torch.minimum(agreed, last - at - 1)
        position[rows] += agreed
    return steps, committed
