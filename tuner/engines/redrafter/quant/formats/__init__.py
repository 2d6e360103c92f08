"""Checkpoints that others quantized: which layout, and its linear layers as ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.engines.redrafter.quant.formats.awq import AwqLayout
from tuner.engines.redrafter.quant.formats.compressed_tensors import compressed_tensors_layout
from tuner.engines.redrafter.quant.formats.fp8 import Fp8Layout
from tuner.engines.redrafter.quant.formats.layout import Layout, unsupported
from tuner.errors import BadInput

__all__ = ["Layout", "layout_of"]


def layout_of(folder: Path) -> Layout | None:
    """Return the layout that config.json of `folder` names; None where nothing is quantized.

    Raises:
        BadInput: a layout that this engine does not read, by name.
    """
    raw: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings = raw.get("quantization_config")
    if not settings:
        return None
    if not isinstance(settings, dict):
        raise BadInput("quantization_config", settings, "is not a JSON object")
    match settings.get("quant_method"):
        case "compressed-tensors":
            return compressed_tensors_layout(settings)
        case "awq":
            return AwqLayout(settings)
        case "fp8" | "fbgemm_fp8":
            return Fp8Layout(settings)
        case other:
            raise unsupported("quant_method", other, "compressed-tensors, awq, fp8 or fbgemm_fp8")
