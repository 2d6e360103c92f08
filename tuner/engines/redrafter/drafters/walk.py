"""Exact acceptance of any draft method at temperature 0, without an engine.

The text that the base model writes does not depend on who drafts. So its greedy answers are written
once and every method is led through them as in serving: draft, accept what agrees, go on after the
base model's own next token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.forward import read_rows


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and its greedy answer, with the contexts of positions from `start` on."""

    category: str
    prompt: list[int]
    answer: list[int]
    context: Tensor  # [P + A - start, context_size]
    start: int

    def contexts(self, begin: int, end: int) -> Tensor:
        """Return the contexts of positions `begin` to `end` of prompt and answer."""
        return self.context[begin - self.start : end - self.start]


@dataclass(frozen=True, slots=True)
class Walked:
    """The steps that an answer took, and the tokens committed in them (not the first token)."""

    steps: int
    committed_tokens: int


@torch.inference_mode()
def read_text(
    base: Llama, category: str, prompt: list[int], answer: list[int], method: DraftMethod
) -> Text:
    """Read a prompt and its answer with the base model; keep the contexts that `method` needs."""
    tokens = torch.tensor([[*prompt, *answer]], device=base.norm.weight.device)
    _, context = read_rows(base, tokens, method.context_layers)
    start = max(0, len(prompt) - max(1, method.context_window))
    return Text(category, prompt, answer, context[0, start:].clone(), start)


@torch.inference_mode()
def walk(
    method: DraftMethod, texts: Sequence[Text], beam_width: int, draft_len: int
) -> list[Walked]:
    """Lead `method` through all texts side by side; return what each took."""
    longest = max(len(text.prompt) + len(text.answer) for text in texts)
    method.reserve(len(texts), longest + 1 + beam_width * draft_len)
    walkers = [_Walker(place, text) for place, text in enumerate(texts, start=1)]
    going = [walker for walker in walkers if not walker.at_end]
    for walker in going:
        walker.join(method)
    while going:
        drafts = _propose(method, going, beam_width, draft_len)
        committed = [w.advance(beams) for w, beams in zip(going, drafts, strict=True)]
        _observe(method, going, committed, draft_len)
        going = [walker for walker in going if not walker.at_end]
    return [Walked(w.steps, w.written - 1) for w in walkers]


class _Walker:
    """Where one answer stands: its first `written` tokens are committed."""

    def __init__(self, place: int, text: Text) -> None:
        self.place, self.text = place, text
        self.written, self.steps = 1, 0

    @property
    def at_end(self) -> bool:
        return self.written >= len(self.text.answer)

    @property
    def position(self) -> int:
        """Position whose context the newest token was chosen from."""
        return len(self.text.prompt) + self.written - 2

    def join(self, method: DraftMethod) -> None:
        prompt = self.text.prompt
        context = self.text.contexts(self.text.start, len(prompt))
        method.join(self.place, [*prompt, self.text.answer[0]], context)

    def advance(self, beams: list[list[int]]) -> list[int]:
        """Accept what agrees with the answer and one token more; return what was committed."""
        rest = self.text.answer[self.written :]
        accepted = max(_agreement(beam[1:], rest) for beam in beams)
        committed = rest[: accepted + 1]
        self.steps += 1
        self.written += len(committed)
        return committed


def _agreement(draft: list[int], truth: list[int]) -> int:
    pairs = zip(draft, truth, strict=False)
    shorter = min(len(draft), len(truth))
    return next((i for i, (mine, theirs) in enumerate(pairs) if mine != theirs), shorter)


def _propose(
    method: DraftMethod, going: list[_Walker], beam_width: int, draft_len: int
) -> list[list[list[int]]]:
    device = going[0].text.context.device
    places = torch.tensor([w.place for w in going], device=device if method.graph_safe else "cpu")
    true_token = torch.tensor([w.text.answer[w.written - 1] for w in going], device=device)
    context = torch.cat([w.text.contexts(w.position, w.position + 1) for w in going])
    beams = method.propose(places, true_token, context, beam_width, draft_len)
    assert beams.shape == (len(going), beam_width, 1 + draft_len)
    assert torch.equal(beams[..., 0], true_token.unsqueeze(1).expand(-1, beam_width))
    drafts: list[list[list[int]]] = beams.tolist()
    return drafts


def _observe(
    method: DraftMethod, went: list[_Walker], committed: list[list[int]], draft_len: int
) -> None:
    """Tell `method` what was committed; who is at the end leaves."""
    pairs = [(w, tokens) for w, tokens in zip(went, committed, strict=True) if not w.at_end]
    for walker in went:
        if walker.at_end:
            method.leave(walker.place)
    if not pairs:
        return
    contexts = [w.text.contexts(w.position + 1 - len(new), w.position + 1) for w, new in pairs]
    padded = torch.nn.utils.rnn.pad_sequence(contexts, batch_first=True)
    method.observe([w.place for w, _ in pairs], [new for _, new in pairs], padded)
