"""Where a model comes from: a local Hugging Face directory, a hub id, or the built-in model."""

from tuner.models.resolve import BUILTIN_MODEL, resolve_model

__all__ = ["BUILTIN_MODEL", "resolve_model"]
