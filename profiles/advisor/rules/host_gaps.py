"""Time that goes to the host, in steps and between them."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding
from profiles.records import ServeMetrics, StepAnatomy

HIGH_HOST_SHARE = 0.20  # our judgement


def host_gaps(evidence: Evidence) -> list[Finding]:
    """Find trials that spend much of their time outside of what the engine's phases do.

    The step anatomy knows the gaps between steps too; records without one know only the steps.
    """
    metrics, config = evidence.result.metrics, evidence.result.config
    if metrics is None:
        return []
    anatomy = evidence.result.anatomy
    share, words = _of_wall(anatomy) if anatomy else _of_steps(metrics)
    if share <= HIGH_HOST_SHARE:
        return []
    return [
        Finding(
            rule="host_gaps",
            severity="warning",
            title=f"{share:.1%} of the time belongs to no phase of the engine but to the host.",
            evidence=[words],
            causes=[
                f"{NOT_SHOWN}scheduling, reading tokens back and stop checks on the host",
                f"{NOT_SHOWN}other processes taking the host's cores from the engine",
            ],
            next_experiment="Record the trial with `tuner run --profile nsys` or torch to see the "
            "gaps; a larger batch_size shares the host's work among more tokens.",
            knobs={"batch_size": [min(1024, 2 * config.batch_size)]},
        )
    ]


def _of_wall(anatomy: StepAnatomy) -> tuple[float, str]:
    host, gaps = anatomy.phases["host"], anatomy.gaps
    return host.share + gaps.share, (
        f"host {host.mean_ms:.2f} ms in a step (p95 {host.p95_ms:.2f}), {host.share:.1%} of wall "
        f"time, and {gaps.mean_ms:.2f} ms between steps (p95 {gaps.p95_ms:.2f}), "
        f"{gaps.share:.1%}, over {anatomy.steps} steps"
    )


def _of_steps(metrics: ServeMetrics) -> tuple[float, str]:
    share = metrics.time_share.host
    return share, (
        f"time_share.host = {share:.1%}: {share * metrics.step_ms_mean:.2f} ms of "
        f"step_ms_mean {metrics.step_ms_mean:.2f} ms"
    )
