"""Run every rule over the evidence of one trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding, Severity
from profiles.advisor.rules.busy_sms import busy_sms
from profiles.advisor.rules.collapsing_beams import collapsing_beams
from profiles.advisor.rules.far_below_roof import far_below_roof
from profiles.advisor.rules.foreign_gpu_process import foreign_gpu_process
from profiles.advisor.rules.foreign_load import foreign_load
from profiles.advisor.rules.free_nodes import free_nodes
from profiles.advisor.rules.host_gaps import host_gaps
from profiles.advisor.rules.idle_drafter import idle_drafter
from profiles.advisor.rules.known_errors import known_errors
from profiles.advisor.rules.low_acceptance import low_acceptance
from profiles.advisor.rules.memory_pressure import memory_pressure
from profiles.advisor.rules.out_of_memory import out_of_memory
from profiles.advisor.rules.prefill_tail import prefill_tail
from profiles.advisor.rules.text_differs import text_differs
from profiles.advisor.rules.throttling import throttling
from profiles.advisor.rules.useless_speculation import useless_speculation
from profiles.advisor.rules.wide_interval import wide_interval

Rule = Callable[[Evidence], list[Finding]]

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        known_errors,
        out_of_memory,
        throttling,
        foreign_load,
        foreign_gpu_process,
        text_differs,
        idle_drafter,
        useless_speculation,
        wide_interval,
        low_acceptance,
        collapsing_beams,
        busy_sms,
        free_nodes,
        far_below_roof,
        host_gaps,
        memory_pressure,
        prefill_tail,
    )
}


def advise(evidence: Evidence) -> list[Finding]:
    """Return what the rules find, problems first, then in the order of `RULES`."""
    found = [finding for rule in RULES.values() for finding in rule(evidence)]
    order = get_args(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))
