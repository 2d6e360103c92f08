"""The trials table with its units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard.data.trial_rows import TrialRow, as_frame
from dashboard.formats import MISSING

_NUMBER = st.column_config.NumberColumn
_TEXT = st.column_config.TextColumn

COLUMNS = {
    "trial": _NUMBER("Trial", width=55),
    "beam_width": _NUMBER("W", width=50, help="Beam width: beams that the drafter keeps"),
    "draft_len": _NUMBER(
        "D", width=50, help="Draft length: tokens drafted per beam, the true token not counted"
    ),
    "draft_len_min": _NUMBER(
        "D from", width=60, help="Steps draft from so many tokens to D; none: always D"
    ),
    "speculate_up_to": _NUMBER(
        "Up to", width=60, help="Nothing is drafted while more requests run; none: always"
    ),
    "batch_size": _NUMBER("Batch", width=60),
    "precision": _TEXT("Precision", width=75),
    "drafter": _TEXT("Drafter", width="medium"),
    "draft_vocab_size": _NUMBER(
        "Vocabulary", width=85, help="Tokens that the drafter may propose; none: its own"
    ),
    "drafter_quantization": _TEXT(
        "Drafter in", width=80, help="Precision of the drafter's weights; default: not quantized"
    ),
    "tokens_per_s": _NUMBER("Tok/s", format="%.1f", width=70, help="Output tokens/s, all users"),
    "speedup": _NUMBER(
        "Speed-up", format="%.2fx", width=80, help="Paired ratio to no speculation at this batch"
    ),
    "interval": _TEXT("95 % interval", width=100),
    "acceptance_length": _NUMBER(
        "Accepted", format="%.2f", width=80, help="Acceptance length: committed tokens per step"
    ),
    "tpot_ms_p95": _NUMBER(
        "TPOT p95 (ms)", format="%.1f", width=105, help="Time per output token after the first"
    ),
    "ttft_ms_p95": _NUMBER("TTFT p95 (ms)", format="%.1f", width=105, help="Time to first token"),
    "memory_peak_mib": _NUMBER("Memory (MiB)", format="%.0f", width=100, help="Peak memory"),
    "state": _TEXT("State", width=90),
    "note": _TEXT("Note", width="large"),
}


MOST_ROWS = 24
_ROW_PX = 35


def _height(rows: Sequence[TrialRow]) -> int:
    """Show every row of a usual sweep; longer tables scroll."""
    return _ROW_PX * (min(len(rows), MOST_ROWS) + 1) + 3


def trial_table(rows: Sequence[TrialRow], key: str) -> int | None:
    """Draw the rows; return the trial of the row that was just clicked."""
    clicked = st.dataframe(
        as_frame(rows),
        key=key,
        column_config=COLUMNS,
        hide_index=True,
        placeholder=MISSING,
        lazy=False,
        height=_height(rows),
        on_select="rerun",
        selection_mode="single-row",
        alt="Trials and what they measured; choose one to open it",
    )["selection"]["rows"]
    return rows[clicked[0]].trial if clicked else None


def selectable_trial_table(
    rows: Sequence[TrialRow], chosen: int, key: str, on_choose: Callable[[int], None]
) -> None:
    """Draw the rows; clicking one calls `on_choose` with its trial number."""
    numbers = [row.trial for row in rows]
    widget = f"{key}_{chosen}"  # a new widget when another trial is chosen elsewhere

    def go() -> None:
        chosen_rows = st.session_state[widget]["selection"]["rows"]
        if chosen_rows:
            on_choose(numbers[chosen_rows[0]])

    st.dataframe(
        as_frame(rows),
        key=widget,
        column_config=COLUMNS,
        hide_index=True,
        placeholder=MISSING,
        lazy=False,
        height=_height(rows),
        on_select=go,
        selection_mode="single-row",
        selection_default={"selection": {"rows": [numbers.index(chosen)]}},
        alt="Trials and what they measured; choose one for its detail",
    )
