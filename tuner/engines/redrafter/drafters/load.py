"""From the name of a drafter to what drafts; `tuner.models.drafters` says what names there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tokenizers

from tuner.engines.redrafter.checkpoint import load_drafter, load_llama
from tuner.engines.redrafter.config import SUPPORTED_ARCHITECTURES
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.drafters.causal_lm import CausalLMDraft
from tuner.engines.redrafter.drafters.local_attention import LocalAttentionDraft
from tuner.engines.redrafter.drafters.look_back import load_local_attention
from tuner.engines.redrafter.drafters.recurrent import RecurrentDraft
from tuner.engines.redrafter.drafters.retrieval import RetrievalDraft
from tuner.engines.redrafter.drafters.suffix_index import SuffixIndex
from tuner.engines.redrafter.drafters.text_store import read_store
from tuner.engines.redrafter.fit import cut_vocabulary
from tuner.engines.redrafter.linear import Compute, Module, apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.quant.quantize import quantize, round_to_nearest
from tuner.errors import BadInput
from tuner.models import resolve_model
from tuner.models.drafters import LOCAL_ATTENTION, is_retrieval, kind_of
from tuner.workloads.tokenizer import HFTokenizer


def load_draft_method(
    drafter: str,
    model: Llama,
    model_dir: Path,
    compute: Compute,
    draft_vocab_size: int | None = None,
) -> DraftMethod:
    """Load what `drafter` names, for `model` of the folder `model_dir`, on its device.

    Args:
        drafter: its name.
        model: the base model, loaded.
        model_dir: where it was loaded from.
        compute: precision and device of the drafter; quantized, all its linear layers are rounded
            without calibration.
        draft_vocab_size: how many of its most frequent tokens it may propose; None: all.

    Raises:
        BadInput: nothing by that name, something that does not fit the model, or a draft vocabulary
            or a precision that the drafter does not have.
    """
    if is_retrieval(drafter):
        store = drafter.partition(":")[2]
        _refuse_cut(draft_vocab_size, "retrieval")
        if compute.quantized:
            raise BadInput(
                "drafter_quantization",
                compute.precision,
                "retrieval has no weights; leave it out",
            )
        return RetrievalDraft(_index(Path(store).expanduser(), model_dir) if store else None)
    folder = resolve_model(drafter)
    kind = kind_of(folder)
    if kind == LOCAL_ATTENTION:
        recurrent, look_back = load_local_attention(folder, model.config)
        return LocalAttentionDraft(
            _computed(cut_vocabulary(recurrent, draft_vocab_size), compute),
            _computed(look_back, compute),
            model.embed_tokens,
            compute.activation_dtype,
        )
    if kind in SUPPORTED_ARCHITECTURES:
        _refuse_cut(draft_vocab_size, "a causal LM")
        known, small = _common_tokens(folder, model_dir), load_llama(folder)
        if small.config.vocab_size < known:
            raise BadInput("drafter", str(folder), f"its tokenizer needs a vocabulary of {known}")
        return CausalLMDraft(_computed_lm(small, compute), known)
    drafter_net = cut_vocabulary(load_drafter(folder, model.config), draft_vocab_size)
    return RecurrentDraft(_computed(drafter_net, compute), model.embed_tokens)


def _computed(net: Module, compute: Compute) -> Module:
    return round_to_nearest(net, compute) if compute.quantized else apply_compute(net, compute)


def _computed_lm(model: Llama, compute: Compute) -> Llama:
    if not compute.quantized:
        return apply_compute(model, compute)
    try:
        return quantize(model, compute, ())
    except BadInput as error:
        raise BadInput(
            "drafter_quantization", error.value, "its checkpoint is quantized already; leave it out"
        ) from error


def _refuse_cut(draft_vocab_size: int | None, kind: str) -> None:
    if draft_vocab_size is not None:
        raise BadInput("draft_vocab_size", draft_vocab_size, f"{kind} has none; leave it out")


def _common_tokens(folder: Path, model_dir: Path) -> int:
    """Return how many tokens the drafter and the base model know, which must be the same."""
    theirs, ours = _vocabulary(folder), _vocabulary(model_dir)
    if theirs != ours:
        differing = sorted(token for token, _ in theirs.items() ^ ours.items())
        raise BadInput(
            "drafter",
            str(folder),
            f"its tokenizer differs from the base model's ({len(theirs)} tokens, not {len(ours)}; "
            f"for one {differing[0]!r}); use a model of the same tokenizer",
        )
    return max(ours.values()) + 1


def _vocabulary(folder: Path) -> dict[str, int]:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadInput(
            "drafter", str(folder), "cannot be checked without tokenizer.json; copy it there"
        )
    try:
        vocabulary: dict[str, int] = tokenizers.Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the library raises bare Exception
        raise BadInput("drafter", str(path), f"is no tokenizer ({error})") from error
    return vocabulary


def _index(path: Path, model_dir: Path) -> SuffixIndex:
    encode = HFTokenizer(model_dir).encode
    documents = [np.array(encode(text), dtype=np.int32) for text in read_store(path)]
    return SuffixIndex(documents)
