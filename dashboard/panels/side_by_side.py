"""Two trials of the run side by side, or two of its imported profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from dashboard.charts.capture_timeline import capture_timeline_figure, capture_timeline_info
from dashboard.charts.show import show
from dashboard.charts.step_anatomy import step_anatomy_figure, step_anatomy_info
from dashboard.data.captures import ImportedCapture, captures_of
from dashboard.data.side_by_side import (
    KernelPair,
    Pair,
    capture_pairs,
    kernel_pairs,
    pair_frame,
    trial_pairs,
)
from dashboard.panels.capture_view import kernels_of, times_of
from profiles.records import TrialResult
from profiles.store import RunFolder

TRIALS, PROFILES = "Trials", "Profiles"
MOST_KERNELS = 200
Key = TypeVar("Key", int, str)
_NUMBER = st.column_config.NumberColumn


def side_by_side(run: RunFolder, result: TrialResult, results: Sequence[TrialResult]) -> None:
    """Draw the two chooser boxes and what they choose."""
    what = st.segmented_control("Compare", [TRIALS, PROFILES], default=TRIALS, required=True)
    if what == TRIALS:
        _trials(result, results)
    else:
        _profiles(captures_of(run))


def _trials(result: TrialResult, results: Sequence[TrialResult]) -> None:
    if len(results) < 2:
        st.info("This run has one trial with a result; a second one can be compared to it.")
        return
    by_number = {each.number: each for each in results}
    other = next(number for number in by_number if number != result.number)
    left, right = _choose(
        [result.number, other],
        list(by_number),
        lambda number: f"Trial {number}: {by_number[number].config.describe()}",
        f"trials_{result.number}",
    )
    a, b = by_number[left], by_number[right]
    show(
        step_anatomy_figure(
            step_anatomy_info({f"trial {left}": a.anatomy, f"trial {right}": b.anatomy})
        ),
        key="compare_anatomy",
        alt="Mean time of a step by phase of both trials",
    )
    _pair_table(trial_pairs(a, b), f"Trial {left}", f"Trial {right}")


def _profiles(captures: Sequence[ImportedCapture]) -> None:
    if len(captures) < 2:
        st.info("Import two profiles into this run to see them side by side.")
        return
    by_key = {capture.key: capture for capture in captures}
    keys = list(by_key)
    left, right = _choose(keys[:2], keys, lambda key: by_key[key].label, "profiles")
    try:
        for place, key in zip(st.columns(2, gap="large"), (left, right), strict=True):
            with place:
                _capture(by_key[key])
        a, b = (kernels_of(by_key[key].version) for key in (left, right))
    except (ValueError, OSError):
        st.error("The tables of one of these imports are damaged. Import the file again.")
        return
    _pair_table(capture_pairs(by_key[left].summary, by_key[right].summary), "Left", "Right")
    _kernel_table(kernel_pairs(a, b))


def _choose(
    chosen: Sequence[Key], keys: Sequence[Key], label: Callable[[Key], str], name: str
) -> list[Key]:
    return [
        place.selectbox(
            side, keys, index=keys.index(key), format_func=label, key=f"compare_{side}_{name}"
        )
        for side, place, key in zip(
            ("Left", "Right"), st.columns(2, gap="large"), chosen, strict=True
        )
    ]


def _capture(capture: ImportedCapture) -> None:
    times = times_of(capture.version)
    show(
        capture_timeline_figure(capture_timeline_info(times, times.worked_ms)),
        key=f"compare_timeline_{capture.key}",
        alt=f"Timeline of {capture.label}",
    )


def _pair_table(pairs: Sequence[Pair], left: str, right: str) -> None:
    st.dataframe(
        pair_frame(pairs),
        hide_index=True,
        placeholder="n/a",
        height="content",
        column_config={
            "what": st.column_config.TextColumn("", width="medium"),
            "left": _NUMBER(left, format="localized"),
            "right": _NUMBER(right, format="localized"),
            "change_pct": _NUMBER("Right against left", format="%+.1f %%"),
        },
        alt="Both sides number by number",
    )


def _kernel_table(pairs: Sequence[KernelPair]) -> None:
    if not pairs:
        st.caption("Neither file has kernel times.")
        return
    st.markdown("**Kernels, the largest difference first**")
    st.dataframe(
        pair_frame(pairs[:MOST_KERNELS]),
        hide_index=True,
        placeholder="did not run",
        lazy=False,
        column_config={
            "kernel": st.column_config.TextColumn("Kernel", width=260),
            "left_ms": _NUMBER("Left (ms)", format="%.3f"),
            "right_ms": _NUMBER("Right (ms)", format="%.3f"),
            "difference_ms": _NUMBER("Difference (ms)", format="%+.3f"),
            "left_launches": _NUMBER("Left launches", format="localized"),
            "right_launches": _NUMBER("Right launches", format="localized"),
            "name": st.column_config.TextColumn("Name in full", width="large"),
        },
        alt="Kernels of both profiles",
    )
