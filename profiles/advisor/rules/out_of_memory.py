"""A trial ran out of memory, and the order in which to make it fit."""

from __future__ import annotations

from profiles.advisor.errors_seen import known_lines
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding, Knob
from profiles.advisor.memory_order import MEMORY_ORDER, smaller


def out_of_memory(evidence: Evidence) -> list[Finding]:
    """Find a failure for want of memory in the error or the log."""
    seen = [(known, line) for known, line in known_lines(evidence) if known.family == "memory"]
    if not seen:
        return []
    knobs: dict[Knob, list[int | float | str]] = smaller(evidence.result)
    config, workload = evidence.result.config, evidence.result.workload
    return [
        Finding(
            rule="out_of_memory",
            severity="problem",
            title=f"Out of memory: {seen[0][0].meaning}.",
            evidence=[
                *(line for _, line in seen),
                f"batch_size {config.batch_size}, max_new_tokens {workload.max_new_tokens}, "
                f"beam_width {config.beam_width}, draft_len {config.draft_len}",
            ],
            causes=[known.meaning for known, _ in seen],
            next_experiment=f"{MEMORY_ORDER} The same size will fail again.",
            knobs=knobs,
        )
    ]
