"""On-policy data: the base model answers given prompts, or user turns that it invents itself.

A drafter has to guess what this model will say, so this model's own words are the best lesson.
User turns are sampled after varied openings; answers are mostly greedy, as serving mostly is.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.openings import DOCSTRING_END, draw_openings
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput
from tuner.workloads.tokenizer import HFTokenizer
from tuner.workloads.workload import Message

OnProgress = Callable[[float, str], None]
_MARK = "\x00"
_TURN_TIME_SHARE = 0.25
_REPEATERS_KEPT = 0.1

Pair = tuple[list[int], NDArray[np.int32]]
"""A prompt and its answer."""


@dataclass(frozen=True, slots=True)
class GenerateSpec:
    """What to generate. Time, where given, is shared between user turns and answers."""

    model_dir: Path
    out: Path
    prompts: int = 2000
    given: tuple[tuple[int, ...], ...] = ()  # whole prompts as token ids; none: invent them
    max_turn_tokens: int = 128
    max_new_tokens: int = 320
    turn_temperature: float = 0.9
    sampled_share: float = 0.25  # further answers at `answer_temperature`, of all answers
    answer_temperature: float = 0.8
    batch_size: int | None = None  # None: 2048 on a GPU (22 GB at this model's size), else 64
    max_seconds: float = float("inf")
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("prompts", "max_turn_tokens", "max_new_tokens", "batch_size", "max_seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise BadInput(name, value, "must be positive")
        if not 0 <= self.sampled_share < 1:
            raise BadInput("sampled_share", self.sampled_share, "must be in [0, 1)")

    @property
    def rows_at_once(self) -> int:
        """Rows decoded together."""
        return self.batch_size or (64 if self.device == "cpu" else 2048)


@dataclass(frozen=True, slots=True)
class GenerateReport:
    """What came out."""

    rows: int
    answer_tokens: int
    repeaters_dropped: int
    turn_seconds: float
    answer_seconds: float


def generate_answers(
    spec: GenerateSpec, on_progress: OnProgress = lambda f, t: None
) -> GenerateReport:
    """Write `spec.out`.

    Raises:
        BadInput: a model without a chat template, or nothing but unusable turns.
    """
    began = time.monotonic()
    device = torch.device(spec.device)
    if spec.given:
        positions = max(len(prompt) for prompt in spec.given)
        model = load_frozen(spec.model_dir, device, positions + spec.max_new_tokens)
        stops = HFTokenizer(spec.model_dir).stop_token_ids
        prompts = [list(prompt) for prompt in spec.given]
    else:
        frame = ChatFrame(spec.model_dir)
        positions = len(frame.before) + 2 * spec.max_turn_tokens + len(frame.after)
        model = load_frozen(spec.model_dir, device, positions + spec.max_new_tokens)
        stops = frame.stops
        prompts = _invent_turns(model, frame, spec, on_progress)
        if not prompts:
            raise BadInput("prompts", spec.prompts, "no user turn came to an end; ask for more")
    turned = time.monotonic()
    answered = list(_answer(model, stops, prompts, spec, spec.max_seconds + began, on_progress))
    kept = [pair for pairs, _ in answered for pair in pairs]
    if not kept:
        raise BadInput("prompts", len(prompts), "no answer was kept; give more prompts or seconds")
    rows = AnswerRows.join(kept)
    rows.save(spec.out)
    return GenerateReport(
        rows=len(rows),
        answer_tokens=rows.answer_tokens,
        repeaters_dropped=sum(dropped for _, dropped in answered),
        turn_seconds=turned - began,
        answer_seconds=time.monotonic() - turned,
    )


class ChatFrame:
    """What a model's chat template puts before and after a user turn, as token ids."""

    def __init__(self, model_dir: Path) -> None:
        tokenizer = HFTokenizer(model_dir)
        if tokenizer.template == "none":
            raise BadInput("model", str(model_dir), "has no chat template to write user turns in")
        before, after = tokenizer.render([Message("user", _MARK)]).split(_MARK)
        self.before = tokenizer.encode(before)
        self.after = tokenizer.encode(after)
        self.newline = tokenizer.encode("\n")
        self.encode = tokenizer.encode
        self.decode = tokenizer.decode
        self.stops = tokenizer.stop_token_ids

    def close(self, turn: NDArray[np.int32]) -> list[int]:
        """Return a sampled turn without its stop token, or after a docstring with a newline."""
        tokens: list[int] = turn.tolist()
        return tokens[:-1] if tokens[-1] in self.stops else tokens + self.newline

    def docstring_ends(self, vocab_size: int) -> frozenset[int]:
        """Tokens that close a Python docstring."""
        ids = range(vocab_size)
        return frozenset(i for i in ids if self.decode([i]).strip().startswith(DOCSTRING_END))


def _invent_turns(
    model: Llama, frame: ChatFrame, spec: GenerateSpec, on_progress: OnProgress
) -> list[list[int]]:
    """Return whole prompts: template, opening, what the model made of it, template."""
    openings = draw_openings(spec.prompts, spec.seed)
    deadline = time.monotonic() + _TURN_TIME_SHARE * spec.max_seconds
    quotes = frame.docstring_ends(model.config.vocab_size)
    turns = [frame.encode(opening.text) for opening in openings if opening.complete]
    for stub in (True, False):
        begun = [frame.encode(o.text) for o in openings if not o.complete and o.is_stub == stub]
        stops = frame.stops | quotes if stub else frame.stops
        for number, batch in enumerate(_batches(begun, spec)):
            if time.monotonic() > deadline:
                break
            on_progress(0.0, f"inventing user turns, {len(turns)} so far")
            how = Decoding(
                spec.max_turn_tokens, stops, spec.turn_temperature, spec.seed + 2 * number + stub
            )
            ends = _trimmed(decode(model, [frame.before + begun[i] for i in batch], how))
            turns += [
                begun[i] + frame.close(end)
                for i, end in zip(batch, ends, strict=True)
                if end[-1] in stops
            ]
    unique = {tuple(turn) for turn in turns if len(turn) >= 3}
    return [frame.before + list(turn) + frame.after for turn in sorted(unique)]


def _answer(
    model: Llama,
    stops: frozenset[int],
    prompts: list[list[int]],
    spec: GenerateSpec,
    deadline: float,
    on_progress: OnProgress,
) -> Iterator[tuple[list[Pair], int]]:
    """Yield answered prompts and how many were dropped, until all are done or time is up."""
    again = spec.sampled_share / (1 - spec.sampled_share)
    for number, batch in enumerate(_batches(prompts, spec)):
        if time.monotonic() > deadline:
            return
        on_progress(number * spec.rows_at_once / len(prompts), "answering")
        chosen = [prompts[i] for i in batch]
        yield _kept(chosen, decode(model, chosen, Decoding(spec.max_new_tokens, stops)))
        some = chosen[: round(again * len(chosen))]
        if some:
            how = Decoding(spec.max_new_tokens, stops, spec.answer_temperature, spec.seed + number)
            yield _kept(some, decode(model, some, how))


def _kept(prompts: list[list[int]], answers: Tensor) -> tuple[list[Pair], int]:
    """Pair prompts with answers, nine in ten of those that repeat themselves left out."""
    drop = repeating_rows(answers)
    drop &= torch.rand(len(drop)).to(drop.device) > _REPEATERS_KEPT
    dropped = drop.tolist()
    pairs = zip(prompts, _trimmed(answers), strict=True)
    return [pair for pair, out in zip(pairs, dropped, strict=True) if not out], sum(dropped)


def repeating_rows(answers: Tensor, n: int = 8, threshold: float = 0.5) -> Tensor:
    """Say for each row [B, L] (-1 after the end) what `profiles.statistics.repeats_itself` says.

    n-grams are told apart by a 64-bit hash.
    """
    if answers.shape[1] < n:
        return torch.zeros(len(answers), dtype=torch.bool, device=answers.device)
    windows = answers.long().unfold(1, n, 1)
    powers = torch.tensor([pow(6364136223846793005, k, 2**63) for k in range(1, n + 1)])
    hashed = (windows * powers.to(answers.device)).sum(-1)
    inside = windows[..., -1] >= 0
    slot = torch.arange(hashed.shape[1], device=answers.device)
    ordered = torch.where(inside, hashed.abs(), -1 - slot).sort(1).values
    repeats = (ordered[:, 1:] == ordered[:, :-1]).sum(1)
    return repeats > threshold * inside.sum(1)


def _trimmed(answers: Tensor) -> list[NDArray[np.int32]]:
    table = answers.cpu().numpy()
    return [row[:end] for row, end in zip(table, (table >= 0).sum(1), strict=True)]


def _batches(prompts: Sequence[list[int]], spec: GenerateSpec) -> list[list[int]]:
    """Rows of similar length together, the batches in random order."""
    order = list(range(len(prompts)))
    random.Random(spec.seed).shuffle(order)
    order.sort(key=lambda i: len(prompts[i]))
    size = spec.rows_at_once
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    random.Random(spec.seed).shuffle(batches)
    return batches
