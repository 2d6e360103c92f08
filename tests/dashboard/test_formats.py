"""Numbers as people read them."""

from __future__ import annotations

import pytest

from dashboard import formats
from profiles.records import Speedup


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formats.tokens_per_s(47.06), "47.1 tok/s"),
        (formats.tokens_per_s(None), "n/a"),
        (formats.tokens_per_s(None, "it failed"), "n/a (it failed)"),
        (formats.milliseconds(1234.56), "1,234.6 ms"),
        (formats.mebibytes(300 * 1024 * 1024), "300 MiB"),
        (formats.mebibytes(None, "no counter"), "n/a (no counter)"),
        (formats.percent(0.427), "43%"),
        (formats.percent(None, "no drafts"), "n/a (no drafts)"),
        (formats.number(2.345), "2.35"),
        (formats.duration(59.9), "59 s"),
        (formats.duration(192), "3 min 12 s"),
        (formats.duration(7260), "2 h 1 min"),
        (formats.moment("2026-11-29T20:15:36.045664+00:00"), "2026-11-29 20:15 UTC"),
        (formats.ratio(Speedup(speedup=1.42, ci95=(1.36, 1.48), rounds=8)), "1.42x [1.36, 1.48]"),
        (
            formats.ratio(Speedup(speedup=1.42, ci95=(1.42, 1.42), rounds=1)),
            "1.42x (one round, interval unknown)",
        ),
        (formats.ratio(None, "the baseline"), "n/a (the baseline)"),
    ],
)
def test_formats(shown, expected):
    assert shown == expected
