"""Text of others, shown as text: logs and names may hold Markdown."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#$|~:])")


def plain(text: str) -> str:
    """Escape what Streamlit's Markdown would act on."""
    return _MARKUP.sub(r"\\\1", text)
