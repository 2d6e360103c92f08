"""The coordinator of a sweep: asks Optuna, starts one worker a trial, tells the study.

What is on disk decides: a trial whose `result.json` is whole is finished, whatever else died. So
resuming is the same loop as starting. Results that were measured but not told yet are told;
configs that were being measured are measured again; no config hash is measured twice.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from optuna.trial import Trial
from optuna.trial import TrialState as StudyState

from profiles.records import TrialConfig, TrialResult, TrialState
from profiles.status import RunState, RunStatus, now_utc
from profiles.store import RunFolder
from tuner.errors import Interrupted
from tuner.sweep.spec import SweepSpec, violations
from tuner.sweep.study import config_of, distributions, enqueue, open_study, tell, unfinished
from tuner.trial import config_hash

POLL_S = 0.1
GRACE_S = 5.0
TRIES_FOR_A_NEW_CONFIG = 20
NUMBER = "trial"  # the study's attribute that names a trial's folder


class Coordinator:
    """Runs a sweep in this process until it is done, stopped or killed."""

    def __init__(self, run: RunFolder, spec: SweepSpec) -> None:
        self.run = run
        self.spec = spec
        self.workload_hash = run.record().workload_hash
        self.study = open_study(run.study_path, spec)
        self.planned = len(spec.baselines()) + min(spec.trials, sum(1 for _ in spec.points()))
        self.known: dict[str, TrialResult] = {}

    def run_to_the_end(self) -> None:
        """Measure until the planned configs are done.

        Raises:
            Interrupted: a stop was requested, or a signal came; the run can be resumed.
        """
        self.run.clear_stop()
        self._recover()
        self._report("running")
        try:
            with _signals_raise():
                while len(self.known) < self.planned:
                    if self.run.stop_requested():
                        raise Interrupted("stopped on request; resume it to go on")
                    self._one_trial()
        except Interrupted as error:
            self._report("stopped", str(error))
            raise
        except BaseException as error:
            self._report("failed", f"{type(error).__name__}: {error}")
            raise
        self._report("done")

    def _recover(self) -> None:
        """Bring the study in line with the disk, and queue what has to be measured first."""
        # A config may have got fields since it was measured: its hash is made anew.
        self.known = {self._key(r.config): self._judged(r) for r in self.run.trials()}
        on_disk = {result.number: result for result in self.known.values()}
        for trial in unfinished(self.study):
            result = on_disk.get(trial.user_attrs.get(NUMBER, -1))
            if result is not None:
                tell(self.study, trial, result, self.spec)
            else:
                self.study.tell(trial, state=StudyState.FAIL)
                if set(trial.params) == set(distributions(self.spec)):
                    enqueue(self.study, self.spec, config_of(trial, self.spec))
        if not self.study.get_trials(deepcopy=False):
            for baseline in self.spec.baselines():
                enqueue(self.study, self.spec, baseline)
            if self.spec.sampler == "grid":
                for point in self.spec.points():
                    enqueue(self.study, self.spec, point)

    def _one_trial(self) -> None:
        trial, config, key = self._ask_for_a_new_config()
        number = max(self.run.trial_numbers(), default=-1) + 1
        trial.set_user_attr(NUMBER, number)
        folder = self.run.trial(number)
        folder.write_config(config)
        self._report("running", f"trial {number}: {config.describe()}", number)
        self._work(number)
        result = folder.result() or self._crashed(number, config, key)
        result = self._judged(result)
        folder.write_result(result)
        self.known[key] = result
        tell(self.study, trial, result, self.spec)
        self._report("running")

    def _ask_for_a_new_config(self) -> tuple[Trial, TrialConfig, str]:
        """Ask until a config comes that was not measured; after many tries, name one."""
        for attempt in range(TRIES_FOR_A_NEW_CONFIG + 1):
            if attempt == TRIES_FOR_A_NEW_CONFIG:
                enqueue(self.study, self.spec, self._any_untried())
            trial = self.study.ask(distributions(self.spec))
            config = config_of(trial, self.spec)
            key = self._key(config)
            if key not in self.known:
                break
            tell(self.study, trial, self.known[key], self.spec)
        return trial, config, key

    def _any_untried(self) -> TrialConfig:
        untried = [p for p in self.spec.points() if self._key(p) not in self.known]
        return random.Random(self.spec.seed + len(self.known)).choice(untried)

    def _key(self, config: TrialConfig) -> str:
        return config_hash(config, self.spec.workload, self.workload_hash)

    def _work(self, number: int) -> None:
        """Run one worker to its end, or to the end of this process."""
        command = [sys.executable, "-m", "tuner.sweep.worker", str(self.run.path), str(number)]
        log_path = self.run.trial(number).log_path
        with log_path.open("ab") as log:
            worker = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            while worker.poll() is None:
                time.sleep(POLL_S)
        except BaseException:
            worker.terminate()
            try:
                worker.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            raise

    def _crashed(self, number: int, config: TrialConfig, key: str) -> TrialResult:
        lines = self.run.trial(number).log_path.read_text(errors="replace").strip().splitlines()
        return TrialResult(
            number=number,
            state=TrialState.FAILED,
            config=config,
            config_hash=key,
            workload=self.spec.workload,
            started_at=now_utc(),
            finished_at=now_utc(),
            error=f"the worker died: {lines[-1] if lines else 'it left no message'}",
        )

    def _judged(self, result: TrialResult) -> TrialResult:
        """Mark a result that breaks a limit, or whose text is not the base model's."""
        if result.state is not TrialState.COMPLETE:
            return result
        words = violations(result, self.spec.limits)
        if not words:
            return result
        return result.model_copy(update={"state": TrialState.INFEASIBLE, "violations": words})

    def _report(self, state: RunState, message: str = "", trial: int | None = None) -> None:
        self.run.write_status(
            RunStatus.of_this_process(state, message, len(self.known), self.planned, trial)
        )


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into Interrupted while the block runs."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(f"stopped by {signal.Signals(number).name}; resume it to go on")

    before = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
