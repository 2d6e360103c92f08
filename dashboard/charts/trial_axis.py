"""Labels of a trial on a category axis."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.records import TrialConfig, TrialResult

ROOM_FOR_CONFIGS = 20


def trial_labels(results: Sequence[TrialResult]) -> tuple[str, ...]:
    """`#5` over its knobs, or the number alone where many trials share the axis."""
    if len(results) > ROOM_FOR_CONFIGS:
        return tuple(f"#{r.number}" for r in results)
    return tuple(f"#{r.number}<br>{_knobs(r.config)}" for r in results)


def _knobs(config: TrialConfig) -> str:
    drafted = f"W{config.beam_width} D{config.draft_len}" if config.draft_len else "no spec."
    return f"{drafted}<br>B{config.batch_size}"
