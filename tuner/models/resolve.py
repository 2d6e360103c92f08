"""Turn a model name into a local directory in Hugging Face layout."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tuner.errors import BadInput
from tuner.models.builtin import prepare_builtin

BUILTIN_MODEL = "smollm2-135m"

_HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+$")
_NEEDED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model"]


def cache_dir() -> Path:
    """Return the cache of prepared models: $TUNER_CACHE_DIR, else the user's cache folder."""
    explicit = os.environ.get("TUNER_CACHE_DIR")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "redrafter-tuner"


def resolve_model(name: str) -> Path:
    """Return the local directory of `name`: config.json, tokenizer and safetensors.

    `name` is the built-in model, a directory, or a hub id, which the hub's own library downloads
    once and serves from its cache afterwards.

    Raises:
        BadInput: nothing by that name, or a directory without config.json.
    """
    if name == BUILTIN_MODEL:
        return prepare_builtin(cache_dir() / BUILTIN_MODEL)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput("model", name, "has no config.json; give a Hugging Face directory")
        return path
    if path.exists():
        raise BadInput("model", name, "is a file; give the directory that holds config.json")
    if is_hub_id(name):
        return _download(name)
    raise BadInput(
        "model", name, f"no such directory; use {BUILTIN_MODEL!r}, a directory, or a hub id"
    )


def local_folder(name: str) -> Path | None:
    """Return the directory of `name` if it is there already; nothing is prepared or downloaded."""
    path = cache_dir() / name if name == BUILTIN_MODEL else Path(name).expanduser()
    return path if path.is_dir() else None


def is_hub_id(name: str) -> bool:
    """Whether `name` is spelled as the hub spells its models."""
    return bool(_HUB_ID.match(name))


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_NEEDED))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            "model", hub_id, f"the hub did not give it ({reason}); check the id and the network"
        ) from error
