"""Lines of a failed trial's error and log that are known."""

from __future__ import annotations

from profiles.advisor.error_patterns import PATTERNS, ErrorPattern
from profiles.advisor.evidence import Evidence

_LONGEST_QUOTE = 240


def known_lines(evidence: Evidence) -> list[tuple[ErrorPattern, str]]:
    """Return each known kind of error once, with its first line: the error, then the log.

    A trial without an error has none, whatever its log says: engines log what they survived.
    """
    if evidence.result.error is None:
        return []
    found: dict[str, tuple[ErrorPattern, str]] = {}
    for line in [*evidence.result.error.splitlines(), *(evidence.log or "").splitlines()]:
        known = next((p for p in PATTERNS if p.pattern.search(line)), None)
        if known is not None and known.name not in found:
            found[known.name] = (known, quote(line))
    return list(found.values())


def quote(line: str) -> str:
    """A line of text, cut to a readable length."""
    text = " ".join(line.split())
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
