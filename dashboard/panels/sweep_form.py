"""The form that asks for a sweep, filled with one that suits a first run."""

from __future__ import annotations

import streamlit as st

from dashboard.data.judged import OBJECTIVES
from dashboard.data.sweep_request import SweepRequest
from dashboard.panels.sweep_form_space import space_fields
from tuner.engines import engine_names
from tuner.sweep.spec import SweepSpec

SUGGESTED = SweepSpec()
SAMPLERS = {
    "tpe": "TPE: learns from the trials so far",
    "random": "random",
    "grid": "grid: in order",
}


def sweep_form(workload: str) -> SweepRequest | None:
    """Draw the form; return what it holds when Start was pressed."""
    with st.form("sweep", border=False):
        left, right = st.columns(2, gap="large")
        with left:
            st.subheader("What is served", anchor=False)
            served = _served()
            st.subheader("What is best", anchor=False)
            wanted = _wanted()
        with right:
            st.subheader("What is tried", anchor=False)
            space = space_fields()
            search = _search()
        pressed = st.form_submit_button("Start sweep", type="primary", icon=":material/play_arrow:")
    return (
        SweepRequest(workload=workload, **served, **wanted, **space, **search) if pressed else None
    )


def _served() -> dict:
    engine, model = st.columns(2)
    values: dict = {
        "engine": engine.selectbox(
            "Engine",
            engine_names(),
            help="redrafter: the engine of this project, on CPU or GPU. fake: plays recorded "
            "timings back, to learn the tool; it measures nothing.",
        ),
        "model": model.text_input(
            "Model",
            SUGGESTED.model,
            help="The built-in smollm2-135m, a Hugging Face folder on this host, or a hub id.",
        ),
    }
    requests, tokens, temperature = st.columns(3)
    values["requests"] = requests.number_input(
        "Requests",
        min_value=1,
        value=SUGGESTED.workload.requests,
        help="Prompts served in a trial, once with the config and once without speculation. "
        "More of them narrow the interval of the speed-up and take longer.",
    )
    values["max_new_tokens"] = tokens.number_input(
        "New tokens",
        min_value=2,
        value=SUGGESTED.workload.max_new_tokens,
        help="Longest answer to each prompt, in tokens.",
    )
    values["temperature"] = temperature.number_input(
        "Temperature",
        min_value=0.0,
        max_value=2.0,
        value=SUGGESTED.workload.temperature,
        step=0.1,
        help="0 always takes the likeliest token. Higher samples, as your users may: drafts are "
        "accepted less often. What is written stays distributed as without speculation.",
    )
    return values


def _wanted() -> dict:
    values: dict = {
        "objective": st.selectbox(
            "Objective",
            list(OBJECTIVES),
            format_func=lambda name: OBJECTIVES[name],
            help="What the best config is best at. Output tokens/s counts all users together.",
        )
    }
    with st.expander("Limits (optional)"):
        st.caption("A config that breaks a limit is measured and shown, but is never the best.")
        first, second = st.columns(2)
        values["max_tpot_ms_p95"] = _limit(
            first, "TPOT p95 at most (ms)", "Time per output token after the first."
        )
        values["max_ttft_ms_p95"] = _limit(second, "TTFT p95 at most (ms)", "Time to first token.")
        values["min_tokens_per_s"] = _limit(first, "Output at least (tok/s)", "All users together.")
        values["max_memory_mib"] = _limit(second, "Memory at most (MiB)", "Peak memory.")
    return values


def _limit(place: st.delta_generator.DeltaGenerator, label: str, explained: str) -> float | None:
    return place.number_input(
        label, min_value=0.0, value=None, placeholder="no limit", help=explained
    )


def _search() -> dict:
    trials, seed = st.columns(2)
    return {
        "trials": trials.number_input(
            "Trials",
            min_value=1,
            value=SUGGESTED.trials,
            help="Configs to measure, beside one baseline per batch size and precision. "
            "Never more than the choices above allow.",
        ),
        "seed": seed.number_input(
            "Seed", min_value=0, value=SUGGESTED.seed, help="Fixes what is sampled."
        ),
        "sampler": st.selectbox(
            "Search",
            list(SAMPLERS),
            format_func=lambda name: SAMPLERS[name],
            help="How the next config is chosen.",
        ),
    }
