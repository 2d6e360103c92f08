"""Reading memory is the limit, so more tree nodes cost little."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.samples import while_serving
from profiles.records import ServeMetrics
from profiles.roofline import Roofline

WORTH_TRYING = 0.5  # our judgement: at least half as many nodes again are free
# Our judgement: weights stream at well over half of peak bandwidth while tensor pipes mostly wait.
MEMORY_BOUND_DRAM_PCT = 60.0
IDLE_TENSOR_PCT = 30.0


def free_nodes(evidence: Evidence) -> list[Finding]:
    """Find verify passes that could verify more nodes in the same time.

    The roofline and the verify times of other trees judge; only where there is no roofline do
    busy memory and idle tensor pipes.
    """
    metrics, config = evidence.speculated, evidence.result.config
    if metrics is None:
        return []
    roof = evidence.roofline()
    found = _by_roofline(roof) if roof is not None else _by_counters(evidence, metrics)
    if not found:
        return []
    return [
        Finding(
            rule="free_nodes",
            severity="info",
            title="Memory bandwidth is the limit while arithmetic waits: "
            "more tree nodes would cost little.",
            evidence=found,
            causes=["a step reads every weight once, however many nodes it verifies"],
            next_experiment="Measure wider beams or a longer draft; stop where step_ms_mean "
            "begins to grow faster than acceptance_length.",
            knobs={
                "beam_width": [min(64, 2 * config.beam_width)],
                "draft_len": [min(16, config.draft_len + 1)],
            },
        )
    ]


def _by_roofline(roof: Roofline) -> list[str]:
    """Evidence for nodes that limits call free and no measured tree has shown to cost."""
    wanted = (1 + WORTH_TRYING) * roof.tree_nodes
    costly = roof.costly_nodes_measured
    if roof.free_until_nodes_by_limits < wanted or (costly is not None and costly <= wanted):
        return []
    return [
        cite.limits(roof),
        f"tree_nodes = {roof.tree_nodes:.1f} per request and step, {roof.sequences:.1f} requests "
        f"in a step; by the limits reading takes longer than computing up to "
        f"{roof.free_until_nodes_by_limits:.0f} nodes",
        *_measured(roof),
    ]


def _measured(roof: Roofline) -> list[str]:
    free, costly = roof.free_until_nodes_measured, roof.costly_nodes_measured
    if free is None:
        return []
    end = "the largest measured" if costly is None else f"{costly:.1f} nodes took longer"
    return [
        f"trees of this run took at most 10% longer to verify up to {free:.1f} nodes ({end}), "
        f"{len(roof.measured)} trees measured"
    ]


def _by_counters(evidence: Evidence, metrics: ServeMetrics) -> list[str]:
    columns = ("dram_active_pct", "tensor_active_pct")
    for tally in while_serving(evidence, *columns):
        dram, tensor = (tally.means[column] for column in columns)
        if dram >= MEMORY_BOUND_DRAM_PCT and tensor <= IDLE_TENSOR_PCT:
            return [
                f"dram_active_pct = {dram:.1f} % and tensor_active_pct = {tensor:.1f} % on "
                f"{tally.source}, means of {tally.samples} samples while the trial served",
                f"tree_nodes_mean = {metrics.tree_nodes_mean:.1f} nodes per request and step",
            ]
    return []
