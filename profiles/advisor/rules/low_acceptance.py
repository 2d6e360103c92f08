"""Few of the drafted positions are accepted."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.acceptance_causes import supported_causes
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding
from profiles.advisor.rules.idle_drafter import is_idle

LOW_PATH_ACCEPTANCE = 0.40  # our judgement; the rate falls with draft_len for any drafter


def low_acceptance(evidence: Evidence) -> list[Finding]:
    """Find a low path acceptance rate, with its causes in the order the record supports them."""
    metrics, speedup = evidence.speculated, evidence.result.speedup
    if metrics is None or metrics.path_acceptance_rate is None:
        return []
    rate = metrics.path_acceptance_rate
    if rate >= LOW_PATH_ACCEPTANCE or (is_idle(metrics) and not evidence.is_shape_only):
        return []
    draft_len = evidence.result.config.draft_len
    cited = [
        f"path_acceptance_rate = {rate:.1%} (under {LOW_PATH_ACCEPTANCE:.0%})",
        cite.acceptance_length(metrics, draft_len),
    ]
    pays = speedup is not None and speedup.rounds > 1 and speedup.ci95[0] > 1
    if speedup is not None and speedup.rounds > 1:
        cited.append(cite.speedup(speedup))
    causes = supported_causes(evidence, metrics)
    return [
        Finding(
            rule="low_acceptance",
            severity="info" if pays or evidence.is_shape_only else "warning",
            title=_title(rate, evidence, pays),
            evidence=cited,
            causes=[
                *(cause.text for cause in causes),
                f"{NOT_SHOWN}the drafter was trained with another chat template",
            ],
            next_experiment=(
                causes[0].next_experiment
                if causes
                else "Run `tuner eval-drafter` for acceptance by category and by shape."
            ),
            knobs=causes[0].knobs if causes else {},
        )
    ]


def _title(rate: float, evidence: Evidence, pays: bool) -> str:
    title = f"Only {rate:.1%} of drafted positions are accepted"
    if evidence.is_shape_only:
        return f"{title}, but on prompts without real text, so this says nothing about use."
    return f"{title}, and it still pays." if pays else f"{title}."
