"""Is the drafter any good, and if not, why: causes by the evidence that tells them apart."""

from __future__ import annotations

from dataclasses import dataclass

USELESS_BELOW = 1.2
"""Acceptance length under which drafting cannot pay: it saves hardly a step in six."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the hidden state does for a recurrent drafter."""

    top1: float  # first drafted tokens that are the base model's choice
    top1_shuffled: float  # the same with hidden states of other positions
    top1_shifted: float  # the same with those of the position before or after, the better


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured on the training answers; shares are in [0, 1], losses nats a token."""

    acceptance_length: float | None  # None: no held-out prompts
    framed_prompts: float | None  # share ending as the chat template does; None: no template
    base_agreement: float  # answer tokens that the base model would choose
    base_loss: float  # of the answers, under the base model
    chance_loss: float  # of a guess among the whole vocabulary
    reading: Reading | None  # None: the drafter does not live by one hidden state
    vocab_coverage: float  # answer tokens that the drafter can propose
    loss_fall: float | None  # from the second third of the training to the last; None: too short
    steps: int


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely reason, what shows it and what to do."""

    name: str
    evidence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`useless` is None where nothing was measured."""

    useless: bool | None
    text: str
    causes: list[Cause]


def judge(evidence: Evidence) -> Verdict:
    """Say plainly what a drafter is worth."""
    length = evidence.acceptance_length
    if length is None:
        return Verdict(None, "Not measured: too few prompts to hold some out.", [])
    if length >= USELESS_BELOW:
        return Verdict(False, f"{length:.2f} tokens a step on held-out prompts.", [])
    causes = [cause for rule in _RULES if (cause := rule(evidence))]
    text = f"Useless: {length:.2f} tokens a step on held-out prompts, where 1 is no drafter at all."
    if not causes:
        text += " None of the usual causes shows in the data; look at the drafter's shape."
    return Verdict(True, text, causes)


def _wrong_tokenizer(evidence: Evidence) -> Cause | None:
    if evidence.base_loss < 0.6 * evidence.chance_loss:
        return None
    return Cause(
        "wrong tokenizer",
        f"the base model gives the answers {evidence.base_loss:.1f} nats a token, and a blind "
        f"guess costs {evidence.chance_loss:.1f}: to it these tokens are noise",
        "make the answers with this model's own tokenizer",
    )


def _template_mismatch(evidence: Evidence) -> Cause | None:
    framed = evidence.framed_prompts
    if framed is None or framed >= 0.5:
        return None
    return Cause(
        "template mismatch",
        f"{framed:.0%} of the prompts end as the model's chat template ends a user turn",
        "generate answers through the chat template, as they are served",
    )


def _foreign_answers(evidence: Evidence) -> Cause | None:
    if evidence.base_agreement >= 0.5 or _wrong_tokenizer(evidence):
        return None
    return Cause(
        "answers of another model",
        f"the base model would choose {evidence.base_agreement:.0%} of the answers' tokens",
        "let the base model write the answers itself",
    )


def _wrong_hidden_state(evidence: Evidence) -> Cause | None:
    reading = evidence.reading
    if reading is None:
        return None
    off_by_one = reading.top1_shifted > reading.top1 + 0.05
    ignored = reading.top1 > 0.05 and reading.top1 < reading.top1_shuffled + 0.02
    if not (off_by_one or ignored):
        return None
    where = (
        f"with the hidden state of a neighbouring position {reading.top1_shifted:.0%}"
        if off_by_one
        else f"with hidden states of random positions {reading.top1_shuffled:.0%}"
    )
    return Cause(
        "wrong hidden state",
        f"the first drafted token is right in {reading.top1:.0%} of places, {where}",
        "hand over the normalised hidden state that the true token was chosen from",
    )


def _small_vocabulary(evidence: Evidence) -> Cause | None:
    if evidence.vocab_coverage >= 0.8:
        return None
    return Cause(
        "draft vocabulary too small",
        f"it holds {evidence.vocab_coverage:.0%} of the answers' tokens",
        "raise draft_vocab_size",
    )


def _undertrained(evidence: Evidence) -> Cause | None:
    fall = evidence.loss_fall
    if fall is not None and fall < 0.02:
        return None
    shown = "too few to see a trend" if fall is None else f"the loss still fell by {fall:.0%}"
    return Cause(
        "undertrained",
        f"{evidence.steps} steps, {shown} in the last third",
        "train longer, on more answers",
    )


_RULES = (
    _wrong_tokenizer,
    _template_mismatch,
    _foreign_answers,
    _wrong_hidden_state,
    _small_vocabulary,
    _undertrained,
)
