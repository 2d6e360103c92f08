"""From one drafted token to whole beams: what is trained when.

Stage 1 drafts one token. Stage 2 grows to the full draft length and stays there. Stage 3 adds beam
search in the loop (`beam_contrast`). Stages 1 and 3 are off until a share of the training is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import BadInput


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Shares of the whole training, and how stage 3 searches."""

    one_step_share: float = 0.0
    growing_share: float = 0.0
    beam_share: float = 0.0
    beam_width: int = 4
    beam_weight: float = 0.3  # of the beam loss beside the plain one
    beam_positions: int = 1024  # searched in a step, drawn from the batch; fewer if memory bounds

    def __post_init__(self) -> None:
        shares = ("one_step_share", "growing_share", "beam_share")
        for name in (*shares, "beam_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(name, getattr(self, name), "must be in [0, 1]")
        if (total := sum(getattr(self, name) for name in shares)) > 1:
            raise BadInput(" + ".join(shares), total, "must not exceed 1")
        for name in ("beam_width", "beam_positions"):
            if getattr(self, name) < 1:
                raise BadInput(name, getattr(self, name), "must be at least 1")


@dataclass(frozen=True, slots=True)
class Stage:
    """What a step trains."""

    number: int
    draft_len: int


def stage_at(fraction: float, draft_len: int, curriculum: Curriculum) -> Stage:
    """Return the stage after `fraction` of the training, for drafts of `draft_len` at the end."""
    grown = fraction - curriculum.one_step_share
    if grown < 0:
        return Stage(1, 1)
    if fraction >= 1 - curriculum.beam_share and curriculum.beam_share:
        return Stage(3, draft_len)
    if grown < curriculum.growing_share:
        # From two tokens (stage 1 was one), or from one where there was no stage 1.
        first = 2 if curriculum.one_step_share else 1
        steps = draft_len - first + 1
        return Stage(2, min(draft_len, first + int(steps * grown / curriculum.growing_share)))
    return Stage(2, draft_len)
