"""The form that asks for a sweep, filled with one that suits a first run."""

from __future__ import annotations

import streamlit as st

from dashboard.data.judged import OBJECTIVES
from dashboard.data.sweep_request import SweepRequest
from tuner.engines import engine_names
from tuner.models.drafters import RETRIEVAL
from tuner.sweep.spec import SweepSpec

SUGGESTED = SweepSpec()
BEAM_WIDTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]
DRAFT_LENS = [1, 2, 3, 4, 5, 6, 7, 8, 10]
BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
SHIPPED = "the model's own"
DRAFT_VOCABULARIES = [None, 512, 1024, 2048, 4096, 8192, 16_384, 32_768]
KV_CACHES = ["auto", "fp8"]
PRECISIONS = [None, "fp32", "fp16", "bf16", "fp8", "int8_sq", "int4_awq"]
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
            space = _space()
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
    requests, tokens = st.columns(2)
    values["requests"] = requests.number_input(
        "Requests",
        min_value=1,
        value=SUGGESTED.workload.requests,
        help="Prompts served in a trial, once with the config and once without speculation. "
        "More of them narrow the interval of the speed-up and take longer.",
    )
    values["max_new_tokens"] = tokens.number_input(
        "New tokens per request",
        min_value=2,
        value=SUGGESTED.workload.max_new_tokens,
        help="Longest answer to each prompt.",
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


def _space() -> dict:
    space = {
        "beam_width": st.pills(
            "Beam width (W)",
            BEAM_WIDTHS,
            selection_mode="multi",
            default=SUGGESTED.space.beam_width,
            help="Beams that the drafter keeps. Wider finds longer drafts and costs more time.",
        ),
        "draft_len": st.pills(
            "Draft length (D)",
            DRAFT_LENS,
            selection_mode="multi",
            default=SUGGESTED.space.draft_len,
            help="Tokens drafted per beam, not counting the true token that the base model has "
            "already chosen (TensorRT-LLM: draft_len_per_beam; Apple's beam_length is D + 1).",
        ),
        "batch_size": st.pills(
            "Batch size",
            BATCH_SIZES,
            selection_mode="multi",
            default=SUGGESTED.space.batch_size,
            help="Requests served at once. Each has its own baseline without speculation.",
        ),
        "quantization": st.pills(
            "Precision",
            PRECISIONS,
            selection_mode="multi",
            default=SUGGESTED.space.quantization,
            format_func=lambda name: name or "default",
            help="default is the device's own choice. A precision that this host cannot run gives "
            "a failed trial with the reason.",
        ),
        "kv_cache_dtype": st.pills(
            "KV cache",
            KV_CACHES,
            selection_mode="multi",
            default=SUGGESTED.space.kv_cache_dtype,
            help="auto keeps keys and values as activations are. fp8 takes half the memory of "
            "bf16 and changes the text a little; its baseline keeps them so too.",
        ),
    }
    with st.expander("Drafters (optional)"):
        return space | _drafters()


def _drafters() -> dict:
    named = st.multiselect(
        "Drafters",
        [SHIPPED, RETRIEVAL],
        default=[SHIPPED],
        accept_new_options=True,
        help="Type the folder of a drafter to add it. retrieval copies from the prompt and the "
        "answer so far and needs no training; retrieval:PATH copies from text files as well. "
        "Only the built-in model has a drafter of its own.",
    )
    return {
        "drafter": [None if name == SHIPPED else name.strip() for name in named],
        "draft_vocab_size": st.pills(
            "Draft vocabulary",
            DRAFT_VOCABULARIES,
            selection_mode="multi",
            default=[None],
            format_func=lambda size: "all" if size is None else f"{size:,}",
            help="The most frequent tokens of the drafter, nothing else: drafts are faster and "
            "accepted less often. The text stays the same.",
        ),
    }


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
