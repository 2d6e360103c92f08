"""What the advisor says about a trial: a claim, what it rests on, what to try next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from profiles.records import Record

Severity = Literal["problem", "warning", "info"]  # the most pressing first
ConfigKnob = Literal["beam_width", "draft_len", "batch_size", "quantization"]
WorkloadKnob = Literal["requests", "max_new_tokens", "temperature"]
Knob = ConfigKnob | WorkloadKnob

NOT_SHOWN = "Not shown by this record, worth checking: "


class Finding(Record):
    """One claim about one trial.

    `evidence` cites numbers with their units under the names of `ServeMetrics` and the telemetry
    columns. `causes` come in the order in which the evidence supports them; one that the record
    cannot show begins with `NOT_SHOWN`. `knobs` are values to try, by the names of `TrialConfig`
    and `WorkloadSpec`.
    """

    rule: str
    severity: Severity
    title: str
    evidence: Annotated[list[str], Field(min_length=1)]
    causes: list[str] = []
    next_experiment: str
    knobs: dict[Knob, list[int | float | str]] = {}
