"""`draft_len: auto`: as long as the drafter was trained for, and shorter wherever that pays."""

from __future__ import annotations

from typing import Any

from profiles.records import LONGEST_DRAFT, TrialConfig

AUTO = "auto"
LONGEST_UNTRAINED = 5  # of a drafter that any length will do for


def settle_draft_len(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a trial config with numbers where they say `draft_len: auto`.

    Raises:
        BadInput: an engine or a drafter that is not there.
        pydantic.ValidationError: another field is wrong.
    """
    if config.get("draft_len") != AUTO:
        return config
    from tuner.engines import engine_class

    bounds = ("draft_len", "draft_len_min", "speculate_up_to")
    trial = TrialConfig.model_validate({k: v for k, v in config.items() if k not in bounds})
    longest = engine_class(trial.engine).longest_draft(trial) or LONGEST_UNTRAINED
    settled = {"draft_len": min(longest, LONGEST_DRAFT)}
    if config.get("draft_len_min") is None:
        settled["draft_len_min"] = 1
    return config | settled
