"""Greedy text is not that of plain decoding."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding
from profiles.records import TextCheck


def text_differs(evidence: Evidence) -> list[Finding]:
    """Find text that differs from the baseline: a fault in fp32, perhaps a near-tie elsewhere.

    Without a known precision nothing is said.
    """
    text, precision = evidence.result.text, evidence.result.precision
    if text is None or text.all_equal or precision is None:
        return []
    cited = [
        f"{text.requests - text.equal} of {text.requests} requests differ from the baseline in "
        f"{precision}",
        *([f"first difference: {text.first_difference}"] if text.first_difference else []),
    ]
    return [_fault(cited) if precision == "fp32" else _near_tie(cited, text, precision)]


def _fault(cited: list[str]) -> Finding:
    return Finding(
        rule="text_differs",
        severity="problem",
        title="Speculation changed the greedy text in fp32, which it must never do.",
        evidence=cited,
        causes=["verification, KV cache or positions are wrong: rounding is too small in fp32"],
        next_experiment="Do not use this config. Measure at beam_width 1 and draft_len 1 to find "
        "the smallest shape that differs, and compare the first differing request by itself.",
        knobs={"beam_width": [1], "draft_len": [1]},
    )


def _near_tie(cited: list[str], text: TextCheck, precision: str) -> Finding:
    margin = text.first_difference is not None and "margin" in text.first_difference
    cause = "two tokens nearly tie and rounding, which depends on the shape of a step, decides"
    return Finding(
        rule="text_differs",
        severity="warning",
        title=f"Greedy text differs from the baseline in {precision}: a near-tie, or a fault.",
        evidence=cited,
        causes=[
            f"{cause} (see the margin above)" if margin else f"{NOT_SHOWN}{cause}",
            f"{NOT_SHOWN}verification is wrong in a way that fp32 would show as well",
        ],
        next_experiment="Measure the same config in fp32: if the text is equal there, these were "
        "near-ties. As a control, serve the baseline twice.",
        knobs={"quantization": ["fp32"]},
    )
