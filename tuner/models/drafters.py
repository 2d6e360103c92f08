"""What the name of a drafter stands for, and what can be seen of it without loading it.

`retrieval`, `retrieval:PATH` with a text store, or a directory whose config.json tells its kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.errors import BadInput
from tuner.models.resolve import BUILTIN_MODEL, is_hub_id, local_folder

RETRIEVAL = "retrieval"
LOCAL_ATTENTION = "local_attention_drafter"


def is_retrieval(drafter: str | None) -> bool:
    """Whether `drafter` copies from texts: no weights, no vocabulary."""
    return drafter is not None and drafter.partition(":")[0] == RETRIEVAL


def kind_of(folder: Path) -> str:
    """Return the architecture or the model type that config.json names. Raises BadInput."""
    raw = _read(folder)
    named = raw.get("architectures")
    return str(named[0] if isinstance(named, list) and named else raw.get("model_type"))


def check_drafter(drafter: str | None, model: str) -> None:
    """Raise BadInput where the disk shows that `drafter` cannot draft for `model`.

    What is seen: that it is there, that its config.json can be read, and for a recurrent or a
    local-attention drafter that its hidden size is the model's. A hub id is taken on trust.
    """
    if drafter is None:
        if model != BUILTIN_MODEL:
            raise no_drafter(model)
        return
    if is_retrieval(drafter):
        store = drafter.partition(":")[2]
        if store and not Path(store).expanduser().exists():
            raise BadInput("drafter", drafter, "its text store does not exist")
        return
    folder, base = local_folder(drafter), local_folder(model)
    if folder is None:
        if not is_hub_id(drafter):
            raise BadInput("drafter", drafter, f"no such directory; name one, or {RETRIEVAL!r}")
        return
    kind = kind_of(folder)
    if base is None or kind.endswith("ForCausalLM"):
        return
    theirs = _read(folder / "recurrent" if kind == LOCAL_ATTENTION else folder)
    hidden, wanted = theirs.get("hidden_size"), _read(base, "model").get("hidden_size")
    if hidden != wanted:
        raise BadInput(
            "drafter", drafter, f"its hidden_size is {hidden}, the base model's is {wanted}"
        )


def no_drafter(model: str) -> BadInput:
    """The error of a model that no drafter is shipped for."""
    return BadInput(
        "drafter",
        None,
        f"none is shipped for {model!r}; train one with `tuner train-drafter`, take "
        f"{RETRIEVAL!r}, or set draft_len to 0",
    )


def _read(folder: Path, field: str = "drafter") -> dict[str, Any]:
    try:
        raw: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return dict(raw)
    except (ValueError, TypeError, OSError) as error:
        raise BadInput(field, str(folder), f"has no readable config.json ({error})") from error
