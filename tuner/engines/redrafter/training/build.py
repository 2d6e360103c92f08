"""A fresh drafter for a base model, started from what the base model knows."""

from __future__ import annotations

import torch

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.fit import tokenizer_fingerprint
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.engines.redrafter.training.spec import TrainSpec
from tuner.errors import BadInput


def new_drafter(spec: TrainSpec, base: Llama, rows: AnswerRows) -> Drafter:
    """Return a fresh fp32 drafter on the base model's device.

    Raises:
        BadInput: layers or a draft vocabulary that the model does not have.
    """
    config = base.config
    layers, width = _context(spec, config)
    if bad := [n for n in layers if not 1 <= n <= config.num_layers]:
        raise BadInput("context_layers", bad, f"the model has layers 1 to {config.num_layers}")
    if spec.draft_vocab_size > config.vocab_size:
        raise BadInput(
            "draft_vocab_size",
            spec.draft_vocab_size,
            f"the model has only {config.vocab_size} tokens",
        )
    device = base.norm.weight.device
    drafter = Drafter(
        DrafterConfig(
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            exit_dim=spec.exit_dim or config.hidden_size,
            num_blocks=spec.num_blocks,
            draft_vocab_size=spec.draft_vocab_size,
            trained_draft_len=spec.draft_len,
            context_layers=layers,
            context_width=width,
            num_context_blocks=spec.num_context_blocks,
            recurrence=spec.recurrence,
            state_size=spec.state_size,
            scored_tokens=spec.scored_tokens,
            tokenizer_sha256=tokenizer_fingerprint(spec.model_dir),
        )
    ).to(device)
    counts = rows.count_answer_tokens(config.vocab_size)
    order = counts.argsort(descending=True, stable=True)[: spec.draft_vocab_size]
    drafter.draft_vocab = order.to(device)
    _initialise(drafter, base)
    return drafter


def _context(spec: TrainSpec, config: LlamaConfig) -> tuple[tuple[int, ...], int]:
    layers, width = spec.context_layers, spec.context_width
    if layers is None:
        depths = (round(config.num_layers * share / 15) for share in (4, 8, 12))
        layers = tuple(sorted({max(1, depth) for depth in depths}))
    if width is None:
        width = -(-config.hidden_size * 3 // 2 // 128) * 128
    return layers, width


def _initialise(drafter: Drafter, base: Llama) -> None:
    """Start the head as the LM head's rows and the recurrence at the embedding's scale."""
    with torch.no_grad():
        embedding_rms = base.embed_tokens.weight.float().square().mean().sqrt()
        drafter.rnn_w.weight /= embedding_rms
        if drafter.config.recurrence == "gated":
            drafter.gate_w.weight /= embedding_rms
        if drafter.config.exit_dim == drafter.config.hidden_size:
            drafter.head.weight.copy_(base.lm_head.weight[drafter.draft_vocab])
