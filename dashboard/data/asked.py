"""What a run was asked to do: a sweep, or the single config of `tuner run`."""

from __future__ import annotations

from pydantic import ValidationError

from profiles.errors import DamagedRun
from profiles.records import TrialConfig
from profiles.store import RunFolder
from tuner.sweep.spec import SweepSpec


def spec_of(run: RunFolder) -> SweepSpec:
    """The sweep; a single run counts as one for output tokens/s and without limits.

    Raises:
        DamagedRun: the spec is of another version, or no spec.
    """
    record = run.record()
    try:
        if record.kind == "sweep":
            return SweepSpec.model_validate(record.spec)
        config = TrialConfig.model_validate(record.spec.get("config"))
    except ValidationError as error:
        raise DamagedRun(run.path / "run.json", str(error)) from error
    return SweepSpec(engine=config.engine, model=config.model)
