"""What a drafter is worth: exact acceptance for a grid of beam widths and draft lengths.

The base model writes its answers once, greedily or by sampling, and reads them once. The drafter is
searched at every position (`reach`), and for each (beam_width, draft_len) the answers are walked
exactly as in serving: draft, accept what agrees, go on past the accepted drafts and the base
model's own next token.

That holds for sampled answers too. Verification draws every token from the base model and accepts
the drafts that the draws agree with, so the text is a sample of the base model whatever is drafted,
and how far each step got is how far its drafts agree with the text. What a step may expect over all
texts that could have followed is computed besides (`expected`), which is less noisy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from tuner.engines.base import Progress
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.linear import apply_compute, compute_path
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import (
    SHORT,
    Answers,
    prepare_answers,
    write_answers,
)
from tuner.engines.redrafter.training.expected import Draws, expected_steps
from tuner.engines.redrafter.training.reach import Steps, reach, walk
from tuner.errors import BadInput, UnsupportedConfig
from tuner.workloads.tokenizer import HFTokenizer

__all__ = ["SHORT", "Answers", "prepare_answers", "write_answers"]

GRID = tuple((width, length) for width in (1, 2, 4, 8, 16, 32) for length in range(1, 7))
EVERY = "all"
_RANGES = (1, 33, 65, 129, 257, 513, 1025, 2049)  # first output token of each range


@dataclass(frozen=True, slots=True)
class AcceptanceCell:
    """Acceptance of one (beam_width, draft_len) over one category; "all" is every prompt.

    In a table by position, `category` is the range of output tokens that the step began in.
    `expected_tokens` is what the steps would commit on average over what the base model could have
    written next; None where answers are greedy, or nothing was asked.
    """

    category: str
    beam_width: int
    draft_len: int
    prompts: int
    steps: int
    committed_tokens: int
    expected_tokens: float | None = None

    @property
    def acceptance_length(self) -> float | None:
        """Committed tokens a step, the first token of an answer (from its prompt) aside."""
        return self.committed_tokens / self.steps if self.steps else None

    @property
    def expected_acceptance_length(self) -> float | None:
        """Expected tokens a step."""
        if self.expected_tokens is None or not self.steps:
            return None
        return self.expected_tokens / self.steps


@dataclass(frozen=True, slots=True)
class EvalReport:
    """`everything` counts every answer; `kept` leaves out what repeats itself or is short.

    `by_position` is over what `kept` counts. `positions` is how many the drafter was searched at.
    """

    kept: list[AcceptanceCell]
    everything: list[AcceptanceCell]
    prompts: int
    repeating: int
    short: int
    by_position: list[AcceptanceCell] = field(default_factory=list)
    positions: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are written. What steps may expect is computed at a temperature over 0."""

    temperature: float = 0.0
    seed: int = 0


def evaluate_drafter(
    model_dir: Path,
    drafter_dir: Path,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    grid: Sequence[tuple[int, int]] | None = None,
    max_new_tokens: int = 256,
    device: str = "cpu",
    precision: str | None = None,
    sampling: Sampling = Sampling(),
    on_progress: Progress = lambda fraction, text: None,
) -> EvalReport:
    """Measure a drafter directory on prompts (token ids by category).

    Args:
        model_dir: the base model.
        drafter_dir: the drafter, in either layout.
        prompts: token ids by category.
        grid: pairs of beam_width and draft_len; None: `GRID`, as far as the drafter was trained.
        max_new_tokens: output limit of an answer.
        device: as torch names it.
        precision: fp32, fp16 or bf16; None: bf16 on a GPU, fp32 on the CPU.
        sampling: temperature 0 for greedy answers.
        on_progress: told what is being done.

    Raises:
        BadInput: no prompts, an empty prompt, a grid cell that is not (>= 1, >= 1) or drafts more
            than the drafter was trained for, or a drafter that does not fit the model.
    """
    _check(prompts, grid or GRID, sampling)
    where = torch.device(device)
    longest = max(len(p) for group in prompts.values() for p in group)
    base, drafter = _load(model_dir, drafter_dir, where, precision, longest + max_new_tokens)
    trained = drafter.config.trained_draft_len
    if beyond := [cell for cell in grid or () if cell[1] > trained]:
        raise BadInput("grid", beyond, f"the drafter was trained for draft_len {trained} at most")
    stops = HFTokenizer(model_dir).stop_token_ids
    layers, temperature = drafter.config.context_layers, sampling.temperature
    on_progress(0.0, "the base model writes its answers")
    answers = write_answers(
        base, prompts, max_new_tokens, stops, layers, temperature, sampling.seed
    )
    cells = grid or [cell for cell in GRID if cell[1] <= trained]
    draws = Draws(temperature, stops, max_new_tokens) if temperature else None
    return measure(base, drafter, answers, cells, draws, on_progress)


def _load(
    model_dir: Path, drafter_dir: Path, device: torch.device, precision: str | None, positions: int
) -> tuple[Llama, Drafter]:
    precision = precision or ("bf16" if device.type == "cuda" else "fp32")
    if device.type == "cpu" and precision != "fp32":
        raise UnsupportedConfig("precision", precision, "acceptance is measured in fp32 on a CPU")
    if precision == "fp32":
        torch.set_float32_matmul_precision("highest")  # training may have allowed TF32
    base = load_llama(model_dir)
    if positions > base.config.max_position:
        raise BadInput(
            "max_new_tokens", positions, f"the model has {base.config.max_position} positions"
        )
    drafter = load_drafter(drafter_dir, base.config)
    compute = compute_path(precision, device)
    apply_compute(base, compute)
    # Drafts may lie past the last position that is written.
    reached = positions + drafter.config.trained_draft_len
    base.prepare_positions(reached, device, compute.activation_dtype)
    return base, apply_compute(drafter, compute)


def _check(
    prompts: Mapping[str, Sequence[Sequence[int]]],
    grid: Sequence[tuple[int, int]],
    sampling: Sampling,
) -> None:
    if not any(prompts.values()):
        raise BadInput("prompts", {k: len(v) for k, v in prompts.items()}, "give one at least")
    if empty := [name for name, group in prompts.items() if any(not p for p in group)]:
        raise BadInput("prompts", empty, "holds a prompt without tokens")
    if bad := [cell for cell in grid if min(cell) < 1]:
        raise BadInput("grid", bad, "beam_width and draft_len must be at least 1")
    if not 0 <= sampling.temperature <= 2:
        raise BadInput("temperature", sampling.temperature, "must be in [0, 2]")


@torch.no_grad()
def measure(
    base: Llama,
    drafter: Drafter,
    answers: Answers,
    grid: Sequence[tuple[int, int]] = GRID,
    draws: Draws | None = None,
    on_progress: Progress = lambda fraction, text: None,
) -> EvalReport:
    """Search once per beam width, walk once per cell of the grid.

    `draws` says how the answers were sampled; then what the steps may expect is computed too.
    """
    good = (~(answers.repeating | answers.short)).cpu()
    tables: dict[str, list[AcceptanceCell]] = {"kept": [], "everything": [], "by_position": []}
    by_width = [
        (width, [length for _, length in cells])
        for width, cells in groupby(sorted(grid), key=lambda cell: cell[0])
    ]
    for done, (width, lengths) in enumerate(by_width):
        on_progress(done / len(by_width), f"beam_width {width}")
        reached = reach(base, drafter, answers, width, max(lengths))
        taken = {length: walk(reached[length - 1], answers.drafted) for length in lengths}
        wanted = expected_steps(base, drafter, answers, width, taken, draws) if draws else {}
        for length in lengths:
            counted = _Counted(width, length, taken[length], wanted.get(length))
            for name, rows in (("kept", good), ("everything", torch.ones_like(good))):
                tables[name] += counted.by_category(answers.categories, rows)
            tables["by_position"] += counted.by_position(good)
    return EvalReport(
        prompts=len(good),
        repeating=int(answers.repeating.sum()),
        short=int(answers.short.sum()),
        positions=int(answers.drafted.sum()),
        **tables,
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """The steps of one cell, and what each may expect, [N, A]."""

    beam_width: int
    draft_len: int
    steps: Steps
    expected: Tensor | None

    def by_category(self, categories: list[str], rows: Tensor) -> Iterator[AcceptanceCell]:
        """Yield the sums over `rows` [N] of all, then of every category."""
        for category in (EVERY, *dict.fromkeys(categories)):
            of = torch.tensor([category in (EVERY, name) for name in categories])
            yield self._sum(category, rows & of, slice(None))

    def by_position(self, rows: Tensor) -> Iterator[AcceptanceCell]:
        """Yield the sums by how many output tokens were written when the step began."""
        longest = self.steps.begins.shape[1]
        for begin, end in zip(_RANGES, (*_RANGES[1:], longest + 1), strict=True):
            if begin <= longest:
                yield self._sum(f"{begin}-{end - 1}", rows, slice(begin - 1, end - 1))

    def _sum(self, category: str, rows: Tensor, offsets: slice) -> AcceptanceCell:
        begins = self.steps.begins[rows][:, offsets]
        return AcceptanceCell(
            category,
            self.beam_width,
            self.draft_len,
            int(rows.sum()),
            int(begins.sum()),
            int(self.steps.committed[rows][:, offsets].sum()),
            None if self.expected is None else float(self.expected[rows][:, offsets].sum()),
        )
