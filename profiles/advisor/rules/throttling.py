"""The GPU's clocks were held back while the trial served."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.samples import while_serving

THROTTLED_SHARE = 0.05  # our judgement: fewer samples than this change a mean by too little
# Bits of NVML's clocks event reasons; idle, application clocks, sync boost and display say nothing
# about heat or power.
SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_CAP = 0x4


def throttling(evidence: Evidence) -> list[Finding]:
    """Find slowdowns, which spoil a trial, or else a power cap, which only qualifies it."""
    slowed: list[str] = []
    capped: list[str] = []
    for tally in while_serving(evidence, "throttle_reasons"):
        counts = tally.counts["throttle_reasons"]
        for bit, name in (*SLOWDOWNS.items(), (POWER_CAP, "power cap")):
            share = sum(n for bits, n in counts.items() if bits & bit) / tally.samples
            if share >= THROTTLED_SHARE:
                words = (
                    f"throttle_reasons 0x{bit:x} ({name}) in {share:.1%} of {tally.samples} "
                    f"samples of {tally.source} while the trial served"
                )
                (capped if bit == POWER_CAP else slowed).append(words)
    if slowed:
        return [_unfit(slowed + capped)]
    return [_qualified(capped)] if capped else []


def _unfit(evidence: list[str]) -> Finding:
    return Finding(
        rule="throttling",
        severity="problem",
        title="The GPU was slowed down while the trial served: its times should not be compared.",
        evidence=evidence,
        causes=["heat or the power supply held the clocks down; the bits name which"],
        next_experiment="Let the GPU cool, check fans and power supply, and measure this trial "
        "again.",
    )


def _qualified(evidence: list[str]) -> Finding:
    return Finding(
        rule="throttling",
        severity="info",
        title="The power limit held the clocks: the times are those of this limit.",
        evidence=evidence,
        causes=["the load asks for more power than the limit allows, which is usual when busy"],
        next_experiment="Compare only with trials at the same power limit; if neighbours on the "
        "host vary, lock the clocks and measure again.",
    )
