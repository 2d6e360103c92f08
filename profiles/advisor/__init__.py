"""Findings: rules that read a trial's records, cite their numbers and name the next experiment.

    evidence = gather(run, number)      # or Evidence(result, ...) by hand
    findings = advise(evidence)         # problems first
    missing = unseen(evidence)          # counters that no rule could judge, with reasons

A rule is one file in `rules/`, a pure function from `Evidence` to findings. Missing evidence makes
it silent; silence is no praise.
"""

from profiles.advisor.advise import RULES, advise
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import Finding
from profiles.advisor.gather import gather
from profiles.advisor.samples import unseen

__all__ = ["RULES", "Evidence", "Finding", "advise", "gather", "unseen"]
