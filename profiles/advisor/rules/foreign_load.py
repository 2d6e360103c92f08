"""Other processes kept the host busy while the trial served."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.samples import while_serving
from profiles.telemetry.columns import HOST

FOREIGN_SHARE = 0.25  # our judgement: a quarter of the cores belongs to others


def foreign_load(evidence: Evidence) -> list[Finding]:
    """Find host CPU use far above the trial's own.

    NOTE `Hardware.cores` counts cores this process may use, `host_cpu_pct` is of all the host's:
    where they differ, the foreign load is larger than said here, never smaller.
    """
    served = while_serving(evidence, "host_cpu_pct", "process_cpu_pct")
    tally = next((tally for tally in served if tally.source == HOST), None)
    if tally is None or evidence.hardware is None:
        return []
    cores, means = evidence.hardware.cores, tally.means
    host = means["host_cpu_pct"] / 100 * cores
    own = means["process_cpu_pct"] / 100
    foreign = host - own
    if foreign < FOREIGN_SHARE * cores:
        return []
    return [
        Finding(
            rule="foreign_load",
            severity="problem",
            title=f"Other processes used {foreign:.1f} of {cores} cores while the trial served: "
            "its times should not be compared.",
            evidence=[
                f"host_cpu_pct = {means['host_cpu_pct']:.1f} % of {cores} cores = "
                f"{host:.2f} cores, process_cpu_pct = {means['process_cpu_pct']:.1f} % of "
                f"one core = {own:.2f} cores, means of {tally.samples} samples"
            ],
            causes=["something else ran on this host at the same time"],
            next_experiment="End it or wait for it, and measure this trial again.",
        )
    ]
