"""Whether a drafter fits a base model: hidden size, layers, vocabulary and tokenizer.

A vocabulary may differ by padding, which checkpoints add for the sake of matrix sizes: rows past
the tokenizer's last id. They are never written, so a drafter that can propose them has those rows
of its head cut. What the ids mean is compared by content: a fingerprint of the tokenizer in the
drafter's config, or a tokenizer.json beside it.

The head may be cut further, to the most frequent tokens: a smaller one drafts faster.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import tokenizers
import torch
from torch import Tensor, nn

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafter import Drafter
from tuner.errors import BadInput


def fit(drafter: Drafter, base: LlamaConfig, folder: Path) -> Drafter:
    """Return `drafter`, read from `folder`, without tokens that `base` has no embedding for.

    Raises:
        BadInput: it was made for another base model; says in what they differ.
    """
    config = drafter.config
    if config.hidden_size != base.hidden_size:
        raise _misfit(folder, "hidden_size", config.hidden_size, base.hidden_size)
    deepest = max(config.context_layers, default=0)
    if deepest > base.num_layers:
        raise BadInput(
            "drafter",
            str(folder),
            f"its context_layers name layer {deepest}, the base model has {base.num_layers}",
        )
    if int(drafter.draft_vocab.max()) >= config.vocab_size:
        raise BadInput("drafter", str(folder), "its draft_vocab names tokens past the vocabulary")
    _check_tokenizer(drafter, base, folder)
    if config.vocab_size != base.vocab_size:
        _check_padding(drafter, base, folder)
    _cut_head(drafter, drafter.draft_vocab < base.vocab_size)
    drafter.config = replace(drafter.config, vocab_size=base.vocab_size)
    return drafter


def cut_vocabulary(drafter: Drafter, draft_vocab_size: int | None) -> Drafter:
    """Return `drafter` with the first `draft_vocab_size` tokens of its head; None: with all.

    A trained drafter orders them most frequent first; Apple's layout keeps the tokenizer's order.

    Raises:
        BadInput: the drafter has fewer.
    """
    if draft_vocab_size is None:
        return drafter
    own = drafter.config.draft_vocab_size
    if draft_vocab_size > own:
        raise BadInput(
            "draft_vocab_size", draft_vocab_size, f"the drafter has {own} tokens; take fewer"
        )
    _cut_head(drafter, torch.arange(own) < draft_vocab_size)
    return drafter


def tokenizer_fingerprint(folder: Path) -> str | None:
    """Return the SHA-256 of what every id means, or None where there is no tokenizer.json."""
    vocabulary = _vocabulary(folder)
    if vocabulary is None:
        return None
    canonical = json.dumps(sorted(vocabulary.items(), key=lambda item: (item[1], item[0])))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _vocabulary(folder: Path) -> dict[str, int] | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return tokenizers.Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:  # the library raises bare Exception
        raise BadInput("tokenizer.json", str(path), f"is no tokenizer ({error})") from error


def _check_tokenizer(drafter: Drafter, base: LlamaConfig, folder: Path) -> None:
    theirs = drafter.config.tokenizer_sha256 or tokenizer_fingerprint(folder)
    ours = tokenizer_fingerprint(base.folder) if theirs and base.folder else None
    if ours and theirs != ours:
        raise BadInput(
            "drafter",
            str(folder),
            "it was trained with another tokenizer: its token ids mean other text than those of "
            f"{base.folder}; use the base model that it was trained for, or train one for this",
        )


def _check_padding(drafter: Drafter, base: LlamaConfig, folder: Path) -> None:
    """Raise unless the vocabularies differ in rows past the tokenizer's last id only."""
    vocabulary = _vocabulary(base.folder) if base.folder else None
    theirs, ours = drafter.config.vocab_size, base.vocab_size
    if vocabulary is None:
        raise _misfit(folder, "vocab_size", theirs, ours)
    tokens = max(vocabulary.values()) + 1
    if min(theirs, ours) < tokens:
        raise _misfit(
            folder, "vocab_size", theirs, ours, f", and more than padding: {tokens} are in use"
        )


def _misfit(folder: Path, field: str, theirs: int, ours: int, more: str = "") -> BadInput:
    return BadInput(
        "drafter", str(folder), f"its {field} is {theirs}, the base model's is {ours}{more}"
    )


def _cut_head(drafter: Drafter, keep: Tensor) -> None:
    if not bool(keep.all()):
        drafter.head.weight = nn.Parameter(drafter.head.weight[keep], requires_grad=False)
        drafter.draft_vocab = drafter.draft_vocab[keep]
        drafter.config = replace(drafter.config, draft_vocab_size=len(drafter.draft_vocab))
