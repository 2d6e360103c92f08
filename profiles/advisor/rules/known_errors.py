"""A trial failed with an error text that is known."""

from __future__ import annotations

from profiles.advisor.errors_seen import known_lines
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding


def known_errors(evidence: Evidence) -> list[Finding]:
    """Explain each known error of a failed trial, except memory, which has a rule of its own."""
    return [
        Finding(
            rule="known_errors",
            severity="problem",
            title=f"{known.family} failure ({known.name.replace('_', ' ')}): {known.meaning}.",
            evidence=[line],
            next_experiment=f"Fix, then resume: {known.fix}.",
        )
        for known, line in known_lines(evidence)
        if known.family != "memory"
    ]
