"""From the name of a drafter to what drafts.

`retrieval`, `retrieval:PATH` with a text store, or a directory whose config.json tells its kind.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuner.engines.redrafter.checkpoint import load_drafter
from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.drafters.recurrent import RecurrentDraft
from tuner.engines.redrafter.drafters.retrieval import RetrievalDraft
from tuner.engines.redrafter.drafters.suffix_index import SuffixIndex
from tuner.engines.redrafter.drafters.text_store import read_store
from tuner.engines.redrafter.linear import Compute, apply_compute
from tuner.engines.redrafter.llama import Llama
from tuner.models import resolve_model
from tuner.workloads.tokenizer import HFTokenizer

RETRIEVAL = "retrieval"


def load_draft_method(drafter: str, model: Llama, model_dir: Path, compute: Compute) -> DraftMethod:
    """Load what `drafter` names, for `model` of the folder `model_dir`, on its device.

    Raises:
        BadInput: nothing by that name, or something that does not fit the model.
    """
    kind, _, store = drafter.partition(":")
    if kind == RETRIEVAL:
        return RetrievalDraft(_index(Path(store).expanduser(), model_dir) if store else None)
    folder = resolve_model(drafter)
    return RecurrentDraft(
        apply_compute(load_drafter(folder, model.config), compute), model.embed_tokens
    )


def _index(path: Path, model_dir: Path) -> SuffixIndex:
    encode = HFTokenizer(model_dir).encode
    documents = [np.array(encode(text), dtype=np.int32) for text in read_store(path)]
    return SuffixIndex(documents)
