"""Memory bandwidth is the limit, so more tree nodes cost little."""

from __future__ import annotations

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.samples import while_serving

# Our judgement: weights stream at well over half of peak bandwidth while tensor pipes mostly wait.
MEMORY_BOUND_DRAM_PCT = 60.0
IDLE_TENSOR_PCT = 30.0


def free_nodes(evidence: Evidence) -> list[Finding]:
    """Find busy memory beside idle tensor pipes: the same weights could verify more nodes."""
    metrics, config = evidence.speculated, evidence.result.config
    if metrics is None:
        return []
    columns = ("dram_active_pct", "tensor_active_pct")
    for source, rows in while_serving(evidence, *columns).items():
        dram, tensor = (float(rows[column].mean()) for column in columns)
        if dram < MEMORY_BOUND_DRAM_PCT or tensor > IDLE_TENSOR_PCT:
            continue
        return [
            Finding(
                rule="free_nodes",
                severity="info",
                title="Memory bandwidth is the limit while tensor pipes wait: "
                "more tree nodes would cost little.",
                evidence=[
                    f"dram_active_pct = {dram:.1f} % and tensor_active_pct = {tensor:.1f} % on "
                    f"{source}, means of {len(rows)} samples while the trial served",
                    f"tree_nodes_mean = {metrics.tree_nodes_mean:.1f} nodes per request and step",
                ],
                causes=["a step reads every weight once, however many nodes it verifies"],
                next_experiment="Measure wider beams or a longer draft; stop where step_ms_mean "
                "begins to grow faster than acceptance_length.",
                knobs={
                    "beam_width": [min(64, 2 * config.beam_width)],
                    "draft_len": [min(16, config.draft_len + 1)],
                },
            )
        ]
    return []
