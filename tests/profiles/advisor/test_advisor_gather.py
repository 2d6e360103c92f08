"""The evidence of a trial as it lies on disk."""

from advisor_profiles import failed, result
from measured import run_record, steps

from profiles.advisor import advise, gather
from profiles.store import RunStore


def test_everything_recorded_is_gathered(tmp_path):
    run = RunStore(tmp_path).create(run_record())
    run.trial(0).write_result(failed("the worker died: MemoryError"))
    run.trial(0).log_path.write_bytes(b"\xff old\n" + b"x" * 300_000 + b"\nMemoryError\n")
    run.trial(1).write_result(result(1))
    run.trial(1).write_steps(steps())
    gathered = gather(run, 1)
    assert gathered.result == result(1)
    assert [sibling.number for sibling in gathered.siblings] == [0]
    assert len(gathered.steps) == 4 and gathered.served.sources == [] and gathered.log is None
    assert gathered.hardware.cores == 1
    assert advise(gathered) == []
    crashed = gather(run, 0)
    assert crashed.log.endswith("x\nMemoryError\n") and len(crashed.log) == 200_000
    assert [finding.rule for finding in advise(crashed)] == ["out_of_memory"]


def test_trial_without_a_result_has_no_evidence(tmp_path):
    assert gather(RunStore(tmp_path).create(run_record()), 7) is None
