import numpy as np
import pytest
from measured import paired_round
from pydantic import ValidationError

from profiles.statistics import (
    paired_speedup,
    probability_best,
    repeats_itself,
    speedup_draws,
)


def test_speedup_is_the_ratio_of_total_throughputs():
    # 300 tokens in 4 s against 200 tokens in 2 s; the mean of the rounds' ratios would be 0.83
    rounds = [paired_round(0, 100, 1.0), paired_round(1, 200, 3.0)]
    assert paired_speedup(rounds).speedup == pytest.approx(0.75)


def test_interval_holds_the_extremes_of_two_rounds():
    # the four equally likely draws give 1, 2, 2, 3
    result = paired_speedup([paired_round(0, 100), paired_round(1, 300)])
    assert result.speedup == pytest.approx(2)
    assert result.ci95 == pytest.approx((1, 3))
    assert result.rounds == 2


def test_one_round_has_no_spread():
    result = paired_speedup([paired_round(0, 150)])
    assert result.ci95 == (result.speedup, result.speedup) == (1.5, 1.5)


def test_same_seed_gives_the_same_interval():
    rounds = [paired_round(i, tokens) for i, tokens in enumerate([101, 133, 178, 92, 147, 115])]
    assert paired_speedup(rounds, seed=3) == paired_speedup(rounds, seed=3)
    assert paired_speedup(rounds, 3, 50).ci95 != paired_speedup(rounds, 4, 50).ci95


def test_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        rounds = [paired_round(i, int(generator.normal(1500, 100))) for i in range(12)]
        low, high = paired_speedup(rounds, resamples=500).ci95
        hits += low <= 15 <= high
    assert 0.85 <= hits / 200 <= 0.99


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"trial_s": 0.0}, r"round 7: trial_s = 0\.0"),
        ({"trial_tokens": 0}, r"round 7: trial_tokens = 0"),
        ({"baseline_s": -1.0}, r"baseline_s = -1\.0"),
        ({"baseline_tokens": 0}, r"baseline_tokens = 0"),
    ],
)
def test_empty_round_is_refused(values, message):
    wrong = paired_round(7, 100).model_copy(update=values)
    with pytest.raises(ValueError, match=message):
        paired_speedup([wrong])


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="no paired rounds"):
        paired_speedup([])
    with pytest.raises(ValueError, match="no candidates"):
        probability_best({})


def test_a_round_cannot_hold_nan():
    with pytest.raises(ValidationError):
        paired_round(0, 100, float("nan"))


def test_clear_winner_is_certain_and_a_tie_is_shared():
    fast = speedup_draws([paired_round(i, 300 + i) for i in range(4)])
    slow = speedup_draws([paired_round(i, 100 + i) for i in range(4)])
    assert probability_best({1: slow, 2: fast}) == {1: 0.0, 2: 1.0}
    assert probability_best({1: fast, 2: fast}) == {1: 0.5, 2: 0.5}


def test_probability_of_two_known_spreads():
    # candidate 1 draws 1, 2, 2, 3 and candidate 2 is known to be 2: it wins 1/4 and ties 1/2
    spread = speedup_draws([paired_round(0, 100), paired_round(1, 300)])
    known = speedup_draws([paired_round(0, 200)], resamples=1)
    assert probability_best({1: spread, 2: known})[1] == pytest.approx(0.5, abs=0.02)


def test_draws_depend_on_the_seed_alone():
    rounds = [paired_round(i, t) for i, t in enumerate([100, 140, 120])]
    assert speedup_draws(rounds, seed=5).tolist() == speedup_draws(rounds, seed=5).tolist()
    assert speedup_draws(rounds, seed=5).tolist() != speedup_draws(rounds, seed=6).tolist()


def test_output_that_loops_repeats_itself():
    assert repeats_itself([1, 2, 3] * 20)
    assert not repeats_itself(list(range(60)))


def test_half_repeated_is_not_more_than_half():
    # n = 2 over 1 1 1 2: bigrams 11 11 12, one of three repeats
    assert not repeats_itself([1, 1, 1, 2], n=2)
    assert repeats_itself([1, 1, 1, 2], n=2, threshold=0.3)
    # 1 1 1 2 3: 11 11 12 23, exactly a quarter is no more than a quarter
    assert not repeats_itself([1, 1, 1, 2, 3], n=2, threshold=0.25)


def test_short_output_does_not_repeat_itself():
    assert not repeats_itself([])
    assert not repeats_itself([5] * 7)
