"""What a drafter is worth: exact acceptance for a grid of beam widths and draft lengths.

The base model writes its answers once, greedily or by sampling, and reads them once. Then the
drafter, of whatever kind, is led through them (`drafters.walk`) for each (beam_width, draft_len).

That holds for sampled answers too. Verification draws every token from the base model and accepts
the drafts that the draws agree with, so the text is a sample of the base model whatever is drafted,
and how far each step got is how far its drafts agree with the text. What a step may expect over all
texts that could have followed is computed besides (`expected`), which is less noisy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from tuner.engines.base import Progress
from tuner.engines.redrafter.checkpoint import load_llama
from tuner.engines.redrafter.drafters import DraftMethod, load_draft_method
from tuner.engines.redrafter.drafters.walk import Steps, walk
from tuner.engines.redrafter.linear import Compute, apply_compute, compute_path, drafter_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import Answers, write_answers
from tuner.engines.redrafter.training.batch_decode import Decoding
from tuner.engines.redrafter.training.expected import expected_tokens
from tuner.errors import BadInput, UnsupportedConfig
from tuner.workloads.tokenizer import HFTokenizer

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

    `by_position` is over what `kept` counts. `positions` is how many tokens steps had to commit.
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
    drafter: str,
    prompts: Mapping[str, Sequence[Sequence[int]]],
    grid: Sequence[tuple[int, int]] | None = None,
    max_new_tokens: int = 256,
    device: str = "cpu",
    precision: str | None = None,
    sampling: Sampling = Sampling(),
    draft_vocab_size: int | None = None,
    drafter_quantization: str | None = None,
    on_progress: Progress = lambda fraction, text: None,
) -> EvalReport:
    """Measure a drafter on prompts (token ids by category).

    Args:
        model_dir: the base model.
        drafter: its name, as `TrialConfig.drafter` has it.
        prompts: token ids by category.
        grid: pairs of beam_width and draft_len; None: `GRID`, as far as the drafter goes.
        max_new_tokens: output limit of an answer.
        device: as torch names it.
        precision: fp32, fp16 or bf16; None: bf16 on a GPU, fp32 on the CPU.
        sampling: temperature 0 for greedy answers.
        draft_vocab_size: the drafter's most frequent tokens only; None: all.
        drafter_quantization: fp8; None: the drafter is computed in `precision` too.
        on_progress: told what is being done.

    Raises:
        BadInput: no prompts, an empty prompt, a grid cell that is not (>= 1, >= 1) or asks more
            than the drafter can, or a drafter that does not fit the model.
        UnsupportedConfig: a precision that the device does not have.
    """
    _check(prompts, grid or GRID, sampling)
    longest = max(len(p) for group in prompts.values() for p in group) + max_new_tokens
    compute = _compute(torch.device(device), precision)
    base = load_llama(model_dir)
    if longest > base.config.max_position:
        raise BadInput(
            "max_new_tokens", longest, f"the model has {base.config.max_position} positions"
        )
    apply_compute(base, compute)
    drafts = drafter_compute(compute, drafter_quantization)
    method = load_draft_method(drafter, base, model_dir, drafts, draft_vocab_size)
    cells = _cells(grid, method.max_draft_len, draft_vocab_size)
    # Drafts may lie past the last position that is written.
    reached = longest + max(length for _, length in cells)
    base.prepare_positions(reached, compute.device, compute.activation_dtype)
    stops = HFTokenizer(model_dir).stop_token_ids
    how = Decoding(max_new_tokens, stops, sampling.temperature, sampling.seed)
    on_progress(0.0, "the base model writes its answers")
    answers = write_answers(base, prompts, how, method)
    return measure(base, method, answers, cells, how, on_progress)


def _compute(device: torch.device, precision: str | None) -> Compute:
    precision = precision or ("bf16" if device.type == "cuda" else "fp32")
    if device.type == "cpu" and precision != "fp32":
        raise UnsupportedConfig("precision", precision, "acceptance is measured in fp32 on a CPU")
    if precision == "fp32":
        torch.set_float32_matmul_precision("highest")  # training may have allowed TF32
    return compute_path(precision, device)


def _cells(
    grid: Sequence[tuple[int, int]] | None, longest: int | None, vocabulary: int | None
) -> Sequence[tuple[int, int]]:
    """Return the cells to measure: those of `grid`, or all of `GRID` that the drafter can."""
    beyond = [cell for cell in grid or GRID if longest is not None and cell[1] > longest]
    wider = [cell for cell in grid or GRID if vocabulary is not None and cell[0] > vocabulary]
    if grid is None:
        return [cell for cell in GRID if cell not in beyond and cell not in wider]
    if beyond:
        raise BadInput("grid", beyond, f"the drafter was trained for draft_len {longest} at most")
    if wider:
        raise BadInput("draft_vocab_size", vocabulary, f"take at least beam_width, {wider[0][0]}")
    return grid


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
    method: DraftMethod,
    answers: Answers,
    grid: Sequence[tuple[int, int]],
    how: Decoding | None = None,
    on_progress: Progress = lambda fraction, text: None,
) -> EvalReport:
    """Walk once per cell of the grid.

    Where the answers were sampled, `how` says so; then what the steps may expect is computed too.
    """
    taken: dict[tuple[int, int], Steps] = {}
    for cell in sorted(grid):
        on_progress(len(taken) / len(grid), f"beam_width {cell[0]}, draft_len {cell[1]}")
        taken[cell] = walk(method, answers, *cell)
    sampled = how is not None and how.temperature > 0
    wanted = expected_tokens(base, answers, taken, how) if how is not None and sampled else {}
    good = (~(answers.repeating | answers.short)).cpu()
    tables: dict[str, list[AcceptanceCell]] = {"kept": [], "everything": [], "by_position": []}
    for cell, steps in taken.items():
        counted = _Counted(*cell, steps, wanted.get(cell))
        for name, rows in (("kept", good), ("everything", torch.ones_like(good))):
            tables[name] += counted.by_category(answers.categories, rows)
        tables["by_position"] += counted.by_position(good, int(answers.drafted.max()))
    return EvalReport(
        prompts=len(good),
        repeating=int(answers.repeating.sum()),
        short=int(answers.short.sum()),
        positions=int(answers.drafted.sum()),
        **tables,
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """The steps of one cell, and what each may expect, [S]."""

    beam_width: int
    draft_len: int
    steps: Steps
    expected: Tensor | None

    def by_category(self, categories: list[str], rows: Tensor) -> Iterator[AcceptanceCell]:
        """Yield the sums over `rows` [N] of all, then of every category."""
        for category in (EVERY, *dict.fromkeys(categories)):
            of = rows & torch.tensor([category in (EVERY, name) for name in categories])
            yield self._sum(category, of, torch.ones_like(self.steps.row, dtype=torch.bool))

    def by_position(self, rows: Tensor, longest: int) -> Iterator[AcceptanceCell]:
        """Yield the sums by how many output tokens were written when the step began."""
        written = self.steps.offset + 1
        for begin, end in zip(_RANGES, (*_RANGES[1:], longest + 1), strict=True):
            if begin <= longest:
                inside = (begin <= written) & (written < end)
                yield self._sum(f"{begin}-{end - 1}", rows, inside)

    def _sum(self, category: str, rows: Tensor, steps: Tensor) -> AcceptanceCell:
        counted = steps & rows[self.steps.row]
        return AcceptanceCell(
            category,
            self.beam_width,
            self.draft_len,
            int(rows.sum()),
            int(counted.sum()),
            int(self.steps.committed[counted].sum()),
            None if self.expected is None else float(self.expected[counted].sum()),
        )
