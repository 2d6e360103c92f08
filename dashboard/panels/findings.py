"""What the advisor says about one trial: claims with their numbers, and the next experiment."""

from __future__ import annotations

import streamlit as st

from dashboard.data.plain_text import plain
from profiles.advisor import Finding, advise, gather
from profiles.store import RunFolder

_BADGES = {"problem": "red", "warning": "orange", "info": "blue"}


def show_findings(run: RunFolder, number: int) -> None:
    """Draw every finding, the most pressing first; nothing when there is none."""
    evidence = gather(run, number)
    findings = advise(evidence) if evidence else []
    if not findings:
        return
    st.markdown("**Findings**")
    for finding in findings:
        with st.expander(
            f":{_BADGES[finding.severity]}-badge[{finding.severity}] {plain(finding.title)}"
        ):
            st.markdown(_body(finding))


def _body(finding: Finding) -> str:
    lines = ["Evidence:", *(f"- {plain(text)}" for text in finding.evidence)]
    if finding.causes:
        lines += ["", "Likely causes:", *(f"- {plain(text)}" for text in finding.causes)]
    lines += ["", f"Next: {plain(finding.next_experiment)}"]
    return "\n".join(lines)
