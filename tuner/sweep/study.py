"""The Optuna study of a sweep. One coordinator owns ask and tell; nobody else writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import Connection, event

from profiles.records import TrialConfig, TrialResult
from tuner.sweep.spec import HIGHER_IS_BETTER, SweepSpec, excess, value_of

NAME = "sweep"

optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_study(path: Path, spec: SweepSpec, storage_url: str | None = None) -> Study:
    """Open or make the study at `path` (SQLite), or at `storage_url`."""
    storage = RDBStorage(storage_url) if storage_url else _sqlite(path)
    higher = spec.objective in HIGHER_IS_BETTER
    return optuna.create_study(
        study_name=NAME,
        storage=storage,
        sampler=_sampler(spec),
        direction="maximize" if higher else "minimize",
        load_if_exists=True,
    )


def _sqlite(path: Path) -> RDBStorage:
    """SQLite that survives a kill and a reader: write-ahead log, transactions begun for writing.

    NOTE: Optuna's claim of a waiting trial relies on SELECT ... FOR UPDATE, which SQLite ignores.
    """
    storage = RDBStorage(f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": 60}})

    @event.listens_for(storage.engine, "connect")
    def on_connect(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]
        connection.execute("PRAGMA journal_mode=WAL")  # type: ignore[attr-defined]
        connection.execute("PRAGMA synchronous=NORMAL")  # type: ignore[attr-defined]

    @event.listens_for(storage.engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()
    return storage


def _sampler(spec: SweepSpec) -> optuna.samplers.BaseSampler:
    if spec.sampler == "tpe":
        startup = min(10, max(4, spec.trials // 3))
        return optuna.samplers.TPESampler(seed=spec.seed, n_startup_trials=startup)
    return optuna.samplers.RandomSampler(seed=spec.seed)  # grid: the coordinator enqueues it


def distributions(spec: SweepSpec) -> dict[str, BaseDistribution]:
    """Return the search space in Optuna's terms."""
    return {knob: CategoricalDistribution(values) for knob, values in _choices(spec).items()}


def _choices(spec: SweepSpec) -> dict[str, list[Any]]:
    """The values of every knob; draft_len 0 is the baseline."""
    return spec.knobs | {"draft_len": [0, *spec.space.draft_len]}


def enqueue(study: Study, spec: SweepSpec, config: TrialConfig) -> None:
    """Put `config` in the queue; a knob that means nothing to it takes the first of its values."""
    params = {}
    for knob, values in _choices(spec).items():
        value = getattr(config, knob)
        params[knob] = value if value in values else values[0]
    study.enqueue_trial(params)


def config_of(trial: Trial | FrozenTrial, spec: SweepSpec) -> TrialConfig:
    """Return the config that a trial of the study stands for."""
    return spec.config(**{knob: trial.params[knob] for knob in spec.knobs})


def tell(study: Study, trial: Trial, result: TrialResult, spec: SweepSpec) -> None:
    """Give the study what a trial measured: objective and constraints, or that it failed."""
    value = value_of(result, spec.objective)
    if result.metrics is None or value is None:
        study.tell(trial, state=TrialState.FAIL)
        return
    for name, over in excess(result, spec.limits).items():
        trial.set_constraint(name, over)
    study.tell(trial, value)


def unfinished(study: Study) -> list[Trial]:
    """Return the trials that a dead coordinator left running."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [Trial(study, frozen._trial_id) for frozen in running]
