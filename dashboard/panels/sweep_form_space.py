"""The knobs of the Start form: which values a sweep tries of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from tuner.models.drafters import RETRIEVAL
from tuner.sweep.spec import SearchSpace

SUGGESTED = SearchSpace()
BEAM_WIDTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16]
DRAFT_LENS = [1, 2, 3, 4, 5, 6, 7, 8, 10]
SHORTEST_DRAFTS = [None, 1, 2, 3, 4]
BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
SPECULATING = [None, 1, 2, 4, 8, 16, 32, 64]
PRECISIONS = [None, "fp32", "fp16", "bf16", "fp8", "int8_sq", "int4_awq"]
DRAFTER_PRECISIONS = [None, "fp8"]
KV_CACHES = ["auto", "fp8"]
SHIPPED = "the model's own"
DRAFT_VOCABULARIES = [None, 512, 1024, 2048, 4096, 8192, 16_384, 32_768]


def space_fields() -> dict[str, Any]:
    """Draw the knobs that matter most, the others behind an expander; return values by knob."""
    knobs = {
        "beam_width": _knob(
            "Beam width (W)",
            BEAM_WIDTHS,
            SUGGESTED.beam_width,
            "Beams that the drafter keeps. Wider finds longer drafts and costs more time.",
        ),
        "draft_len": _knob(
            "Draft length (D)",
            DRAFT_LENS,
            SUGGESTED.draft_len,
            "Tokens drafted per beam, not counting the true token that the base model has "
            "already chosen (TensorRT-LLM: draft_len_per_beam; Apple's beam_length is D + 1).",
        ),
        "batch_size": _knob(
            "Batch size",
            BATCH_SIZES,
            SUGGESTED.batch_size,
            "Requests served at once. Each has its own baseline without speculation.",
        ),
        "quantization": _knob(
            "Precision",
            PRECISIONS,
            SUGGESTED.quantization,
            "default is the device's own choice. A precision that this host cannot run gives "
            "a failed trial with the reason.",
            lambda name: name or "default",
        ),
    }
    with st.expander("Advanced (optional)"):
        return knobs | _drafter() | _adaptive() | _kv_cache()


def _drafter() -> dict[str, Any]:
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
        "draft_vocab_size": _knob(
            "Draft vocabulary",
            DRAFT_VOCABULARIES,
            SUGGESTED.draft_vocab_size,
            "The most frequent tokens of the drafter, nothing else: drafts are faster and "
            "accepted less often. The text stays the same.",
            lambda size: "all" if size is None else f"{size:,}",
        ),
        "drafter_quantization": _knob(
            "Drafter precision",
            DRAFTER_PRECISIONS,
            SUGGESTED.drafter_quantization,
            "default does not quantize the drafter, whatever the base model's precision. fp8 "
            "rounds its weights, half the bytes of bf16, on NVIDIA GPUs, and changes drafts only. "
            "The text stays the same; retrieval has no weights.",
            lambda name: name or "default",
        ),
    }


def _adaptive() -> dict[str, Any]:
    return {
        "draft_len_min": _knob(
            "Adaptive draft length",
            SHORTEST_DRAFTS,
            SUGGESTED.draft_len_min,
            "off drafts D tokens at every step. Otherwise a step drafts one token more than its "
            "requests accepted on average lately, within these bounds. 1 to the longest draft that "
            "the drafter was trained for is what draft_len auto means on the command line.",
            lambda shortest: "off" if shortest is None else f"{shortest} to D",
        ),
        "speculate_up_to": _knob(
            "Speculate up to (requests at once)",
            SPECULATING,
            SUGGESTED.speculate_up_to,
            "Draft only while at most so many requests run. A GPU that a large batch keeps busy "
            "pays for every drafted token; at and above the batch size it changes nothing.",
            lambda running: "any" if running is None else str(running),
        ),
    }


def _kv_cache() -> dict[str, Any]:
    return {
        "kv_cache_dtype": _knob(
            "KV cache",
            KV_CACHES,
            SUGGESTED.kv_cache_dtype,
            "auto keeps keys and values as activations are. fp8 takes half the memory of "
            "bf16 and changes the text a little; its baseline keeps them so too.",
        ),
    }


def _knob(
    label: str,
    values: list[Any],
    suggested: list[Any],
    explained: str,
    shown: Callable[[Any], str] = str,
) -> list[Any]:
    """Draw one knob; return the values that are chosen, none or more."""
    return st.pills(
        label,
        values,
        selection_mode="multi",
        default=suggested,
        format_func=shown,
        help=explained,
        wrap=True,
    )
