"""Step time that goes to the host."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding

HIGH_HOST_SHARE = 0.20  # our judgement


def host_gaps(evidence: Evidence) -> list[Finding]:
    """Find steps that spend much of their time outside draft, verify and accept."""
    metrics, config = evidence.result.metrics, evidence.result.config
    if metrics is None or metrics.time_share.host <= HIGH_HOST_SHARE:
        return []
    share = metrics.time_share.host
    return [
        Finding(
            rule="host_gaps",
            severity="warning",
            title=f"{share:.1%} of step time is neither draft, verify nor accept.",
            evidence=[
                f"time_share.host = {share:.1%}: {share * metrics.step_ms_mean:.2f} ms of "
                f"step_ms_mean {metrics.step_ms_mean:.2f} ms"
            ],
            causes=[
                f"{NOT_SHOWN}scheduling, reading tokens back and stop checks on the host",
                f"{NOT_SHOWN}other processes taking the host's cores from the engine",
            ],
            next_experiment="Record the trial with Nsight Systems or the PyTorch profiler and "
            "`tuner import` it to see the gaps; a larger batch_size shares the host's work among "
            "more tokens.",
            knobs={"batch_size": [min(1024, 2 * config.batch_size)]},
        )
    ]
