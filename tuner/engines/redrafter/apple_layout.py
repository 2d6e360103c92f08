"""Apple's drafter checkpoints: `config.json` and tensor names, to and from ours.

The layout holds one form: a context of the last hidden state, concatenated with the recurrent
state, projected where `exit_dim` is not twice the hidden size, and a head over the whole
vocabulary. Its readers (Apple's decoder, TensorRT-LLM's converter) start from a zero state and
score beams among the 50 likeliest tokens.

Fields of our own (`trained_draft_len`, `tokenizer_sha256`, `first_step`) are written beside theirs
where they say something, and read back; their readers ignore them.

A head over fewer tokens is widened without changing what is drafted. One more exit feature is a
constant 1: the input projection gives it by its bias, and the blocks keep it, since SiLU(0) = 0.
Its column of the head is 0 for the tokens the head had and -49,920 for the others, so that those
are masked like everything below the 50 likeliest. `exit_dim` grows to a multiple of 64.

Source: the released drafter's configuration and state dict (apple/ml-recurrent-drafter).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.errors import BadInput

MODEL_TYPE = "recurrent_drafting_drafter"
RELEASED_DRAFT_LEN = 5  # what the released trainer unrolls; the layout does not say
SCORED_TOKENS = 50
_NEVER_APPLIED = "emb_norm.weight"  # stored by the MLX port, read by nothing
_OLDER_SPELLINGS = (("input_projs.", "input_proj."), ("lm_heads.", "lm_head."), ("0.", "lm_head."))
_NEVER_DRAFTED = -49_920.0  # exact in bf16, in fp16 and in fp32
_OURS = ("trained_draft_len", "tokenizer_sha256", "first_step")


def is_apple(raw: dict[str, Any]) -> bool:
    """Whether a `config.json` describes this layout."""
    return raw.get("model_type") == MODEL_TYPE or "num_draft_layers" in raw


def read_config(raw: dict[str, Any]) -> DrafterConfig:
    """Return our description of a drafter in this layout.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or impossible.
    """
    config = DrafterConfig(
        hidden_size=int(raw["hidden_size"]),
        vocab_size=int(raw["vocab_size"]),
        exit_dim=int(raw["exit_dim"]),
        num_blocks=int(raw["num_draft_layers"]),
        draft_vocab_size=int(raw["vocab_size"]),
        trained_draft_len=RELEASED_DRAFT_LEN,
        recurrence="elman" if raw["rnn"] else "sum",
        input_projection=raw["exit_dim"] != 2 * raw["hidden_size"],
        scored_tokens=SCORED_TOKENS,
    )
    return replace(config, **{name: raw[name] for name in _OURS if name in raw})


def tensor_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Return every tensor of the layout and its shape."""
    hidden, exit_dim, blocks = config.hidden_size, config.exit_dim, config.num_blocks
    shapes: dict[str, tuple[int, ...]] = {f"lm_head.{blocks}.weight": (config.vocab_size, exit_dim)}
    for k in range(blocks):
        shapes[f"lm_head.{k}.linear.weight"] = (exit_dim, exit_dim)
        shapes[f"lm_head.{k}.linear.bias"] = (exit_dim,)
    if config.recurrence == "elman":
        shapes |= {"rnn_w.weight": (hidden, hidden), "rnn_u.weight": (hidden, hidden)}
        shapes["rnn_u.bias"] = (hidden,)
    if config.input_projection:
        shapes |= {"input_proj.weight": (exit_dim, 2 * hidden), "input_proj.bias": (exit_dim,)}
    return shapes


def canonical(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return `state` under the layout's names, which older checkpoints spell differently."""
    renamed = {}
    for name, tensor in state.items():
        for older, now in _OLDER_SPELLINGS:
            if name.startswith(older):
                name = now + name.removeprefix(older)
        renamed[name] = tensor
    renamed.pop(_NEVER_APPLIED, None)
    return renamed


def to_ours(state: dict[str, Tensor], config: DrafterConfig) -> dict[str, Tensor]:
    """Return our tensors out of theirs, which `tensor_shapes` names; nothing is copied."""
    ours = {"draft_vocab": torch.arange(config.vocab_size)}
    for name, tensor in state.items():
        if name == "input_proj.weight":
            context, recurrent = tensor.split(config.hidden_size, dim=1)
            ours["context_proj.weight"] = context.contiguous()
            ours["state_proj.weight"] = recurrent.contiguous()
        else:
            ours[_our_name(name, config)] = tensor
    return ours


@dataclass(frozen=True, slots=True)
class AppleCheckpoint:
    """What a folder in this layout holds, and what its readers do differently from us."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    changes: list[str]


def from_ours(drafter: Drafter) -> AppleCheckpoint:
    """Express `drafter` in the layout, in its stored precision.

    Raises:
        BadInput: a setting that the layout cannot express; names it and the remedy.
    """
    config, changes = drafter.config, []
    _refuse_what_is_not_plain(config)
    tensors = _to_theirs(drafter)
    if config.draft_vocab_size < config.vocab_size:
        wide, tensors = _widen(config, tensors, drafter.draft_vocab)
        changes.append(
            f"draft_vocab_size {config.draft_vocab_size} to {wide.draft_vocab_size}, exit_dim "
            f"{config.exit_dim} to {wide.exit_dim}: the same drafts from a larger head"
        )
        config = wide
    else:
        _order_head(config, tensors, drafter.draft_vocab)
    if config.scored_tokens != SCORED_TOKENS:
        changes.append(
            f"scored_tokens {config.scored_tokens} to {SCORED_TOKENS}: beams may rank differently"
        )
    return AppleCheckpoint(_config_json(config), tensors, changes)


def _refuse_what_is_not_plain(config: DrafterConfig) -> None:
    """Raise for everything that the layout has no place for."""
    retrain = "train a drafter without it, or serve this one with the redrafter engine"
    refused = (
        ("context_layers", list(config.context_layers), bool(config.context_layers), retrain),
        ("context_width", config.context_width, config.context_width > 0, retrain),
        ("recurrence", config.recurrence, config.recurrence == "gated", retrain),
        ("state_size", config.state_size, config.state_size > 0, retrain),
        (
            "first_step",
            config.first_step,
            config.first_step != "zero_state" and config.recurrence == "elman",
            "train with 'zero_state', where the layout's readers start",
        ),
        (
            "exit_dim",
            config.exit_dim,
            config.input_projection and config.exit_dim == 2 * config.hidden_size,
            "at twice the hidden size the layout has no input projection and this drafter has "
            "one; train with another exit_dim or without input_projection",
        ),
        (
            "draft_vocab_size",
            config.draft_vocab_size,
            config.draft_vocab_size < min(SCORED_TOKENS, config.vocab_size),
            f"the layout's readers score {SCORED_TOKENS} tokens; train with as many at least",
        ),
    )
    for field, value, is_refused, remedy in refused:
        if is_refused:
            raise BadInput(field, value, f"Apple's layout cannot express it; {remedy}")


def _our_name(name: str, config: DrafterConfig) -> str:
    if name == f"lm_head.{config.num_blocks}.weight":
        return "head.weight"
    name = name.replace("input_proj.", "context_proj.").replace(".linear.", ".")
    return name.replace("lm_head.", "blocks.")


def _to_theirs(drafter: Drafter) -> dict[str, Tensor]:
    """Return their tensors; the head's rows are still in the order of `draft_vocab`."""
    ours, config = drafter.state_dict(), drafter.config
    if config.input_projection:
        ours["input_proj.weight"] = torch.cat(
            (ours.pop("context_proj.weight"), ours.pop("state_proj.weight")), dim=1
        )
    return {
        name: ours[name if name in ours else _our_name(name, config)].cpu()
        for name in tensor_shapes(config)
    }


def _order_head(config: DrafterConfig, state: dict[str, Tensor], draft_vocab: Tensor) -> None:
    head = state[f"lm_head.{config.num_blocks}.weight"]
    ordered = torch.empty_like(head)
    ordered[draft_vocab.cpu()] = head
    state[f"lm_head.{config.num_blocks}.weight"] = ordered


def _widen(
    config: DrafterConfig, state: dict[str, Tensor], draft_vocab: Tensor
) -> tuple[DrafterConfig, dict[str, Tensor]]:
    """Cover the whole vocabulary with the same drafts, by a constant exit feature."""
    before, hidden = config.exit_dim, config.hidden_size
    exit_dim = -(-(before + 1) // 64) * 64
    exit_dim += 64 if exit_dim == 2 * hidden else 0
    more = exit_dim - before
    head_name = f"lm_head.{config.num_blocks}.weight"
    head = state[head_name]
    wide = {name: tensor for name, tensor in state.items() if name.startswith("rnn_")}
    for k in range(config.num_blocks):
        weight, bias = (state[f"lm_head.{k}.linear.{kind}"] for kind in ("weight", "bias"))
        wide[f"lm_head.{k}.linear.weight"] = F.pad(weight, (0, more, 0, more))
        wide[f"lm_head.{k}.linear.bias"] = F.pad(bias, (0, more))
    projection = state.get("input_proj.weight", torch.eye(2 * hidden, dtype=head.dtype))
    constant = F.pad(state.get("input_proj.bias", head.new_zeros(before)), (0, more))
    constant[before] = 1
    wide |= {"input_proj.weight": F.pad(projection, (0, 0, 0, more)), "input_proj.bias": constant}
    wide[head_name] = head.new_zeros(config.vocab_size, exit_dim)
    wide[head_name][:, before] = _NEVER_DRAFTED
    wide[head_name][draft_vocab.cpu()] = F.pad(head, (0, more))
    config = replace(
        config,
        exit_dim=exit_dim,
        draft_vocab_size=config.vocab_size,
        input_projection=True,
    )
    return config, wide


def _config_json(config: DrafterConfig) -> dict[str, Any]:
    return {
        "model_type": MODEL_TYPE,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "exit_dim": config.exit_dim,
        "num_draft_layers": config.num_blocks,
        "num_lookback_tokens": -1,
        "rnn": config.recurrence == "elman",
        **{name: getattr(config, name) for name in _OURS},
    }
