"""Write a measured config out for others, with the evidence it rests on.

Each exporter takes a trial and returns a file's text. What `tuner run` takes back is under
`config` and `workload`; `evidence` is for people and for later comparison.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from profiles.files import write_text
from profiles.records import RunRecord, TrialResult, TrialState
from profiles.store import RunFolder
from tuner.errors import BadInput
from tuner.trial import headline

FORMAT = "redrafter-tuner/config/1"


@dataclass(frozen=True, slots=True)
class Exporter:
    """One target format."""

    suffix: str
    render: Callable[[dict[str, Any]], str]


def _as_yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


EXPORTERS: dict[str, Exporter] = {
    "yaml": Exporter(".yaml", _as_yaml),
    "json": Exporter(".json", _as_json),
}


def render(run: RunFolder, number: int, to: str) -> tuple[str, str]:
    """Return the file name and text of trial `number` in format `to`.

    Raises:
        BadInput: no such format, no such trial, or a trial that measured nothing.
    """
    if to not in EXPORTERS:
        raise BadInput("--to", to, f"use one of {', '.join(EXPORTERS)}")
    result = run.trial(number).result() if number in run.trial_numbers() else None
    if result is None or result.metrics is None:
        raise BadInput("trial", number, f"has no measurement in run {run.run_id}")
    exporter = EXPORTERS[to]
    document = _document(run.record(), result)
    return f"{run.run_id}-trial-{number}{exporter.suffix}", exporter.render(document)


def export(run: RunFolder, number: int, to: str, out: Path) -> Path:
    """Write trial `number` into folder `out` and return the file. Raises BadInput, StorageError."""
    name, text = render(run, number, to)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / name, text)
    return out / name


def _document(record: RunRecord, result: TrialResult) -> dict[str, Any]:
    measured = json.loads(json.dumps(headline(result)))
    measured["state"] = TrialState(measured["state"]).value
    return {
        "format": FORMAT,
        # The precision that was measured, not "the host's default": that may differ elsewhere.
        "config": result.config.model_dump(mode="json") | {"quantization": result.precision},
        "workload": result.workload.model_dump(mode="json"),
        "evidence": {
            "run": record.run_id,
            "trial": result.number,
            "measured_at": result.finished_at,
            "measured": measured,
            "baseline": result.baseline.model_dump(mode="json") if result.baseline else None,
            "limits": record.spec.get("limits", {}),
            "hardware": record.hardware.model_dump(mode="json"),
            "versions": record.versions,
            "git_sha": record.git_sha,
            "workload_hash": record.workload_hash,
        },
    }
