"""Grow a small Llama to a larger shape without changing what it computes.

`python -m tests.bench.grow_8b [--help]` proves it in fp32 on short texts, and writes the grown
model and drafter to a folder if asked. Benchmarks call `grow_llama` and `grow_drafter` directly,
on the device in bf16. Figures taken on the result are of "135M grown to 8B shape".

With r = old hidden size / new hidden size:
- New channels of the residual stream stay zero: embeddings and what `o_proj` and `down_proj` write
  are padded with zeros. Mean squares become r times as large, so eps is times r and norm weights
  are times sqrt(r).
- Old query head i becomes head (i // old group) * new group + i % old group: groups stay together.
  Rotary halves go to the starts of the new halves, and theta to the power of new / old head size,
  which keeps every frequency. Queries are times sqrt(new / old head size).
- Everything that nobody reads holds random numbers, because zeros are not to be timed.
- Rows of new tokens are the mean of the old rows: their logit is the mean logit, never the largest.
  That keeps greedy text; at temperature > 0 it does not keep the distribution.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from tests.bench.grow_drafter import SPREAD, Grown, grow_drafter
from tuner.engines.redrafter.checkpoint import load_drafter, load_llama, save_drafter, save_llama
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.llama import Attend, Llama
from tuner.engines.redrafter.quant.calibrate import causal

LABEL = "135M grown to 8B shape"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a Llama is grown to; nothing of it may be smaller than before."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int


LLAMA_3_8B = Shape(4096, 14336, 32, 32, 8, 128, 128_256)


def grow_llama(
    model: Llama, shape: Shape, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> Llama:
    """Return a model of `shape` that writes what `model` writes; made on `device` in `dtype`."""
    old, new = model.config, _grown_config(model.config, shape)
    grown = Grown(device, dtype, seed)
    source = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    state = {
        "embed_tokens.weight": _grown_rows(grown, source["embed_tokens.weight"], new),
        "lm_head.weight": _grown_rows(grown, source["lm_head.weight"], new),
        "norm.weight": _grown_norm(grown, source["norm.weight"], new),
    }
    for index in range(new.num_layers):
        prefix = f"layers.{index}."
        layer = {n.removeprefix(prefix): t for n, t in source.items() if n.startswith(prefix)}
        made = _grown_layer(grown, layer, old, new)
        state |= {prefix + name: tensor for name, tensor in made.items()}
    with torch.device("meta"):
        result = Llama(new)
    result.load_state_dict(state, assign=True)
    return result.requires_grad_(False).eval()


@torch.no_grad()
def scramble(model: Llama, seed: int = 0) -> Llama:
    """Give every matrix of `model` random numbers: the same shape without zeros, to be timed."""
    generator = torch.Generator(model.norm.weight.device).manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.normal_(0.0, SPREAD, generator=generator)
    return model


def _grown_config(old: LlamaConfig, shape: Shape) -> LlamaConfig:
    for name in Shape.__slots__:
        if getattr(shape, name) < getattr(old, name):
            raise ValueError(f"{name} would shrink: {getattr(old, name)} to {getattr(shape, name)}")
    group = shape.num_heads // shape.num_kv_heads
    if group < old.num_heads // old.num_kv_heads or old.qkv_bias or old.mlp_bias:
        raise ValueError("groups of query heads must not shrink, and biases are not grown")
    return replace(
        old,
        **{name: getattr(shape, name) for name in Shape.__slots__},
        rms_norm_eps=old.rms_norm_eps * old.hidden_size / shape.hidden_size,
        rope=replace(old.rope, theta=old.rope.theta ** (shape.head_dim / old.head_dim)),
        tie_word_embeddings=False,
    )


def _grown_rows(grown: Grown, rows: Tensor, new: LlamaConfig) -> Tensor:
    """Pad an embedding table or a head."""
    extra = rows.mean(dim=0, keepdim=True).expand(new.vocab_size - rows.shape[0], -1)
    return grown.zeros(torch.cat((rows, extra)), new.vocab_size, new.hidden_size)


def _grown_norm(grown: Grown, weight: Tensor, new: LlamaConfig) -> Tensor:
    scaled = weight * math.sqrt(weight.shape[0] / new.hidden_size)
    return grown.zeros(scaled.unsqueeze(0), 1, new.hidden_size)[0]


def _grown_layer(
    grown: Grown, layer: dict[str, Tensor], old: LlamaConfig, new: LlamaConfig
) -> dict[str, Tensor]:
    """Grow one layer; an empty `layer` gives one that adds nothing to the residual stream."""
    width = (new.num_heads + 2 * new.num_kv_heads) * new.head_dim
    made = {
        "self_attn.qkv_proj.weight": grown.random(width, new.hidden_size),
        "self_attn.o_proj.weight": grown.none(new.hidden_size, new.num_heads * new.head_dim),
        "mlp.gate_up_proj.weight": grown.random(2 * new.intermediate_size, new.hidden_size),
        "mlp.down_proj.weight": grown.none(new.hidden_size, new.intermediate_size),
    }
    norms = ("input_layernorm.weight", "post_attention_layernorm.weight")
    if not layer:
        return made | {name: grown.random(1, new.hidden_size)[0] for name in norms}
    made |= {name: _grown_norm(grown, layer[name], new) for name in norms}
    channels = torch.arange(old.hidden_size)
    query, key, value = _head_rows(old, new)
    used = query.view(old.num_heads, -1)[:, :1] + torch.arange(new.head_dim)
    qkv = made["self_attn.qkv_proj.weight"]
    qkv[used.flatten().to(qkv.device)] = 0.0  # so that keys may be anything there
    stored = layer["self_attn.qkv_proj.weight"].clone()
    stored[: len(query)] *= math.sqrt(new.head_dim / old.head_dim)
    grown.put(stored, qkv, torch.cat((query, key, value)), channels)
    grown.put(layer["self_attn.o_proj.weight"], made["self_attn.o_proj.weight"], channels, query)
    inner = torch.arange(old.intermediate_size)
    gate_up = torch.cat((inner, inner + new.intermediate_size))
    grown.put(layer["mlp.gate_up_proj.weight"], made["mlp.gate_up_proj.weight"], gate_up, channels)
    grown.put(layer["mlp.down_proj.weight"], made["mlp.down_proj.weight"], channels, inner)
    return made


def _head_rows(old: LlamaConfig, new: LlamaConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Where the rows of old query, key and value heads go among the new ones, flat."""
    half, new_half = old.head_dim // 2, new.head_dim // 2
    within = torch.cat((torch.arange(half), torch.arange(half) + new_half))
    group, new_group = (c.num_heads // c.num_kv_heads for c in (old, new))
    head = torch.arange(old.num_heads)
    query_head = head // group * new_group + head % group
    key_head = new.num_heads + torch.arange(old.num_kv_heads)
    heads = (query_head, key_head, key_head + new.num_kv_heads)
    query, key, value = ((h.unsqueeze(1) * new.head_dim + within).flatten() for h in heads)
    return query, key, value


@torch.inference_mode()
def write_greedily(model: Llama, prompt: tuple[int, ...], tokens: int) -> list[int]:
    """Let `model` write, reading everything anew for every token."""
    text = list(prompt)
    for _ in range(tokens):
        text.append(int(read(model, text)[-1].argmax()))
    return text[len(prompt) :]


@torch.inference_mode()
def read(model: Llama, text: list[int], attend: Attend = causal) -> Tensor:
    """Return the logits after every token of `text`, [T, vocab] in fp32."""
    weight = model.norm.weight
    model.prepare_positions(len(text), weight.device, weight.dtype)
    positions = torch.arange(len(text), device=weight.device)
    hidden, _ = model(torch.tensor(text, device=weight.device), positions, attend)
    return model.logits(hidden).float()


def main() -> None:
    from tuner.engines.redrafter.engine import SHIPPED_DRAFTER
    from tuner.models import resolve_model
    from tuner.workloads import HFTokenizer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--to", type=Path, help="write base/ and drafter/ there, in bf16")
    for name in Shape.__slots__:
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, default=getattr(LLAMA_3_8B, name))
    options = parser.parse_args()
    shape = Shape(**{name: getattr(options, name) for name in Shape.__slots__})
    device, folder = torch.device(options.device), resolve_model("smollm2-135m")
    small = load_llama(folder).float().requires_grad_(False).to(device)
    large = grow_llama(small, shape, device, torch.float32)
    tokenizer = HFTokenizer(folder)
    for question in ("What is the capital of France?", "Write a haiku about the sea."):
        prompt = tuple(tokenizer.encode(question))
        text = write_greedily(small, prompt, options.tokens)
        ours, theirs = (read(model, [*prompt, *text]) for model in (large, small))
        written = ours[len(prompt) - 1 : -1].argmax(-1).tolist()
        apart = (ours[:, : theirs.shape[1]] - theirs).abs().max()
        largest = theirs.abs().max()
        print(
            f"fp32, {len(text)} tokens after {question!r}: greedy text "
            f"{'equal' if written == text else 'DIFFERENT'}, logits apart by at most "
            f"{float(apart):.2g} of {float(largest):.3g}"
        )
    if options.to:
        drafter = load_drafter(SHIPPED_DRAFTER, small.config)
        base = grow_llama(small, shape, device, torch.bfloat16)
        save_llama(base, options.to / "base", folder, None)
        wide = grow_drafter(drafter, base.config, device, torch.bfloat16)
        save_drafter(wide, options.to / "drafter")
        print(f"written to {options.to}: tuner run --model base --drafter drafter")


if __name__ == "__main__":
    main()
