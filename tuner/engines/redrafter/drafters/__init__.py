"""Methods that draft, behind one interface: recurrent, retrieval, causal LM, local attention."""

from tuner.engines.redrafter.drafters.base import DraftMethod
from tuner.engines.redrafter.drafters.load import load_draft_method

__all__ = ["DraftMethod", "load_draft_method"]
