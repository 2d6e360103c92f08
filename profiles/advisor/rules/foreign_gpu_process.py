"""Another process computed on the GPU while the trial served."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.samples import while_serving


def foreign_gpu_process(evidence: Evidence) -> list[Finding]:
    """Find processes on the trial's GPU that are not the trial's.

    In a container they cannot be told apart, only counted: there the trial's own is one of them.
    """
    for column, own in (("foreign_processes", 0), ("gpu_processes", 1)):
        seen = while_serving(evidence, column)
        for tally in seen:
            counts = tally.counts[column]
            shared = sum(samples for value, samples in counts.items() if value > own)
            if shared:
                words = (
                    f"{column} = {max(counts)} at most on {tally.source}, and over {own} in "
                    f"{shared} of {tally.samples} samples while the trial served"
                )
                return [_finding(words)]
        if seen:
            return []  # who could be told apart need not be counted
    return []


def _finding(words: str) -> Finding:
    return Finding(
        rule="foreign_gpu_process",
        severity="problem",
        title="Another process used the GPU while the trial served: its times should not be "
        "compared.",
        evidence=[words],
        causes=["two processes on one GPU take turns and share its memory and power"],
        next_experiment="End the other process (nvidia-smi names it) or choose another GPU, and "
        "measure this trial again.",
    )
