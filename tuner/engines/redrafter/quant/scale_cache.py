"""Scales found by calibration, kept on disk under the hash of everything they depend on.

`<key>.safetensors` holds the scales and `<key>.json` says what they are of, each written whole.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

VERSION = 1
Scales = dict[str, Tensor]
"""Scale [in] of every folded linear layer, by module name."""


def cache_key(model_dir: Path, precision: str, prompts: Sequence[Sequence[int]]) -> str:
    """Hash the model's files, the precision, the prompts and the version of the method."""
    digest = hashlib.sha256(json.dumps([VERSION, precision, [list(p) for p in prompts]]).encode())
    for path in sorted((model_dir / "config.json", *model_dir.glob("*.safetensors"))):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def read_scales(folder: Path, key: str) -> Scales | None:
    """Return the scales kept under `key`; None when there are none that can be read."""
    try:
        return load_file(folder / f"{key}.safetensors")
    except (OSError, SafetensorError):
        return None


def write_scales(folder: Path, key: str, scales: Scales, about: dict[str, object]) -> None:
    """Keep `scales` under `key`, with `about` beside them for people."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as scratch:
        text = json.dumps({"version": VERSION, **about}, indent=2) + "\n"
        (Path(scratch) / f"{key}.json").write_text(text, encoding="utf-8")
        plain = {name: scale.contiguous().cpu() for name, scale in scales.items()}
        save_file(plain, str(Path(scratch) / f"{key}.safetensors"))
        for name in (f"{key}.json", f"{key}.safetensors"):
            (Path(scratch) / name).replace(folder / name)
