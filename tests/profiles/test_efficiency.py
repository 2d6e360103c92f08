import pandas as pd
import pytest
from measured import BEAM_WIDTH, DRAFT_LEN, change, requests, steps

from profiles.efficiency import efficiency
from profiles.metrics import summarize
from profiles.records import EnergyUse
from profiles.store import TrialFolder
from profiles.verify_curve import VerifyPoint

METRICS = summarize(steps(), requests(), BEAM_WIDTH, DRAFT_LEN)


def point(nodes: float, verify_ms: float) -> VerifyPoint:
    return VerifyPoint(trial=0, tree_nodes=nodes, verify_ms=verify_ms)


def test_nodes_are_counted_by_hand():
    # verified 7+4+5+7+6 = 29 in 5 request steps, accepted 3+0+1+2+1 = 7, committed 11
    found = efficiency(pd.DataFrame(steps()), METRICS)
    assert (found.verified_nodes, found.accepted_nodes, found.rejected_nodes) == (29, 7, 17)
    assert found.cut_tokens == 1  # accepted with its root, then past the length limit
    assert found.wasted_node_share == pytest.approx(18 / 29)
    assert found.verified_nodes_per_committed_token == pytest.approx(29 / 11)


def test_energy_is_divided_by_committed_tokens_or_missing_with_its_reason():
    table = pd.DataFrame(steps())
    known = efficiency(table, METRICS, EnergyUse(energy_mj=22_000, energy_mj_per_token=1.0))
    assert known.energy_j_per_committed_token == pytest.approx(2.0)
    assert known.energy_reason is None
    missing = EnergyUse(energy_mj=None, energy_mj_per_token=None, reason="no RAPL")
    found = efficiency(table, METRICS, missing)
    assert (found.energy_j_per_committed_token, found.energy_reason) == (None, "no RAPL")
    assert efficiency(table, METRICS).energy_reason == "energy was not measured"


def test_drafting_past_the_furthest_accepted_token_is_wasted():
    # draft_ms 0, 2, 2, 1 of 40 ms; the furthest accepted of 3 drafted are -, 3, 2, 1
    found = efficiency(pd.DataFrame(steps()), METRICS)
    assert found.wasted_draft_share == pytest.approx((2 * 1 / 3 + 1 * 2 / 3) / 40)


def test_drafting_is_wasted_past_what_a_step_drafted_itself():
    first, whole, short, none = steps()
    table = pd.DataFrame([first, whole, change(short, draft_len=2), change(none, draft_len=1)])
    # draft_ms 2, 2, 1 of 40 ms; accepted 3 of the config's 3, 2 of 2, 1 of 1
    assert efficiency(table, METRICS).wasted_draft_share == 0.0


def test_verify_time_beyond_the_committed_nodes_is_wasted():
    # 11/5 nodes bought a token of 29/5 that were verified, in 3 steps of 40 ms in all
    curve = [point(1.0, 4.0), point(29 / 5, 6.4)]
    found = efficiency(pd.DataFrame(steps()), METRICS, curve=curve)
    beyond_ms = (29 / 5 - 11 / 5) * (6.4 - 4.0) / (29 / 5 - 1)
    assert found.wasted_verify_share == pytest.approx(3 * beyond_ms / 40)
    assert found.wasted_time_share == found.wasted_draft_share + found.wasted_verify_share
    assert found.wasted_time_reason is None
    free = efficiency(pd.DataFrame(steps()), METRICS, curve=[point(1.0, 6.4), curve[1]])
    assert free.wasted_verify_share == 0


def test_time_on_rejected_nodes_is_not_invented():
    found = efficiency(pd.DataFrame(steps()), METRICS)
    assert found.wasted_verify_share is found.wasted_time_share is None
    assert "no measured baseline or sibling" in found.wasted_time_reason


def test_without_speculation_nothing_is_wasted():
    plain = [
        change(s, tree_nodes=[1 for _ in s.tree_nodes], accepted=[0 for _ in s.accepted],
               committed=[1 for _ in s.committed])
        for s in steps()
    ]  # fmt: skip
    found = efficiency(pd.DataFrame(plain), summarize(plain, requests(), 1, 0))
    assert (found.rejected_nodes, found.cut_tokens, found.wasted_node_share) == (0, 0, 0.0)
    assert (found.wasted_draft_share, found.wasted_time_share) == (0, 0)


def test_table_from_disk_gives_the_same(tmp_path):
    folder = TrialFolder(tmp_path / "0", 0)
    folder.write_steps(steps())
    assert efficiency(folder.steps(), METRICS) == efficiency(pd.DataFrame(steps()), METRICS)


def test_steps_of_another_trial_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"9 committed tokens in 4 steps .* 11 in 5"):
        efficiency(pd.DataFrame(steps()[:3]), METRICS)
    with pytest.raises(ValueError, match="0 committed tokens in 0 steps"):
        efficiency(TrialFolder(tmp_path / "0", 0).steps(), METRICS)
