"""What a config will hold in memory, told before anything is loaded.

Weights, drafter and KV cache are counted from shapes. On CUDA the rest is what the decode loops
keep, with the workspace of the matrix library, and the peak adds what one run of the largest
captured shape makes on its way. On the CPU the rest is the process itself and is not predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from profiles.records import MemorySplit, TrialConfig
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.drafters.needs import DrafterNeeds, drafter_needs
from tuner.engines.redrafter.kv_cache import BLOCK, blocks_for, cache_bytes, kept_dtype
from tuner.engines.redrafter.linear import Compute, drafter_compute
from tuner.engines.redrafter.prefill import PADDED_SIZES
from tuner.engines.redrafter.rows import Rows, positions_of
from tuner.engines.redrafter.weight_bytes import llama_bytes
from tuner.errors import OutOfMemory

MIB = 2**20
# What torch gives cuBLAS on the stream of the graphs; CUBLAS_WORKSPACE_CONFIG may say else.
_HOPPER_WORKSPACE, _OTHER_WORKSPACE = 32 * MIB, 8 * MIB
_WORD = 8  # bytes of a token id, a slot, a length


def positions_needed(config: TrialConfig, max_seq_len: int) -> int:
    """Return the positions that a request of `max_seq_len` tokens may reach."""
    return positions_of(max_seq_len, config.beam_width, config.draft_len)


def blocks_needed(config: TrialConfig, max_seq_len: int) -> int:
    """Return the blocks of the KV cache: those of every place, and nobody's."""
    return 1 + config.batch_size * blocks_for(positions_needed(config, max_seq_len))


def predict_memory(
    base: LlamaConfig, drafter: str, config: TrialConfig, compute: Compute, max_seq_len: int
) -> MemorySplit:
    """Predict what `config` holds while it and its baseline are served.

    Args:
        base: the base model.
        drafter: name of the drafter; not looked at where `config` does not speculate.
        config: what is drafted and how, batch size and KV cache.
        compute: precision and device of the base model.
        max_seq_len: tokens of the longest sequence.

    Raises:
        BadInput: a drafter that cannot be found or read.
        UnsupportedConfig: a precision of the drafter that the device does not have.
    """
    positions = positions_needed(config, max_seq_len)
    needs = DrafterNeeds()
    if config.draft_len > 0:
        needs = drafter_needs(
            drafter,
            base,
            drafter_compute(compute, config.drafter_quantization),
            config.batch_size,
            positions,
            config.draft_vocab_size,
        )
    kept = kept_dtype(config.kv_cache_dtype, compute.device, compute.activation_dtype)
    blocks = blocks_needed(config, max_seq_len)
    memory = MemorySplit(
        weights_bytes=llama_bytes(base, compute),
        drafter_bytes=needs.nbytes,
        kv_bytes=cache_bytes(base, blocks, kept),
        rest_bytes=None,
        peak_bytes=None,
        reason="on the CPU the rest is the process with its libraries, which is not predicted",
    )
    if compute.device.type == "cpu":
        return memory
    sizes = _Sizes(base, needs, config, compute, positions)
    rest = sizes.held()
    peak = _explained(memory) + rest + sizes.activations()
    return memory.model_copy(update={"rest_bytes": rest, "peak_bytes": peak, "reason": None})


def refuse_unless_it_fits(
    config: TrialConfig,
    base: LlamaConfig,
    drafter: str,
    compute: Compute,
    memory: MemorySplit,
    room: int,
) -> None:
    """Raise OutOfMemory, naming the parts, where `memory` needs more than `room` bytes.

    Weights that are quantized here are on the device before they are.
    """
    quantizing = _while_quantized(config, base, drafter, compute, memory)
    loading, held = max(quantizing, default=(0, ""))
    parts = {
        "weights": memory.weights_bytes,
        "drafter": memory.drafter_bytes,
        "KV cache": memory.kv_bytes,
        "buffers and activations": max(0, (memory.peak_bytes or 0) - _explained(memory)),
    }
    needed = max(sum(parts.values()), loading)
    if needed <= room:
        return
    named = ", ".join(f"{name} {size / MIB:,.0f} MiB" for name, size in parts.items())
    if needed == loading:
        named += f"; {held} {loading / MIB:,.0f} MiB"
    raise OutOfMemory(
        f"batch_size = {config.batch_size} needs {needed / MIB:,.0f} MiB ({named}), "
        f"{room / MIB:,.0f} MiB are free; lower batch_size or max_new_tokens, or take "
        "kv_cache_dtype fp8, a smaller precision or a smaller model",
        memory,
    )


def _while_quantized(
    config: TrialConfig, base: LlamaConfig, drafter: str, compute: Compute, memory: MemorySplit
) -> Iterator[tuple[int, str]]:
    """Yield the bytes that are held while something is quantized, and what they are."""
    if compute.quantized:
        wide = llama_bytes(base, replace(compute, precision="bf16"))
        yield wide, "bf16 weights while they are quantized"
    if config.draft_len > 0 and config.drafter_quantization is not None:
        unrounded = drafter_compute(compute, None)
        needs = drafter_needs(drafter, base, unrounded, 0, 0, config.draft_vocab_size)
        held = memory.weights_bytes + needs.nbytes
        yield held, "weights and drafter while the drafter is quantized"


def _explained(memory: MemorySplit) -> int:
    return memory.weights_bytes + memory.drafter_bytes + memory.kv_bytes


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of what a decode loop keeps and makes on CUDA."""

    base: LlamaConfig
    needs: DrafterNeeds
    config: TrialConfig
    compute: Compute
    positions: int

    @property
    def item(self) -> int:
        """Bytes of an activation."""
        return self.compute.activation_dtype.itemsize

    @property
    def context(self) -> int:
        """Width of the drafter's context."""
        return self.base.hidden_size * (1 + self.needs.taps)

    def held(self) -> int:
        """Bytes that stay: rotary table, the loops of the config and its baseline."""
        loops = 2 if self.config.draft_len else 1
        rotation = self.positions * 2 * self.base.head_dim * self.item
        major, _ = torch.cuda.get_device_capability(self.compute.device)
        workspace = _HOPPER_WORKSPACE if major == 9 else _OTHER_WORKSPACE
        return rotation + loops * self._loop() + workspace

    def _loop(self) -> int:
        config, length = self.config, 1 + self.config.draft_len
        capacity = blocks_for(self.positions) * BLOCK
        meta, dtype = torch.device("meta"), self.compute.activation_dtype
        rows = Rows(config.batch_size, capacity, self.context, meta, dtype)
        remembered = length * self.context * self.item if self.needs.window else 0
        a_place = config.beam_width * length * _WORD + remembered
        prompt = _WORD * (2 * max(capacity, PADDED_SIZES[-1]) + PADDED_SIZES[-1])
        contexts_read = sum(PADDED_SIZES) * self.context * self.item  # what captures give
        kept = sum(tensor.nbytes for tensor in rows.tensors())
        return kept + config.batch_size * a_place + prompt + contexts_read

    def activations(self) -> int:
        """Bytes of the largest set that is alive at once in one run."""
        config = self.config
        nodes = config.batch_size * (1 + config.beam_width * config.draft_len)
        drafted = config.batch_size * config.beam_width if config.draft_len else 0
        chunk = PADDED_SIZES[-1]
        return max(
            self._layer(nodes),
            self._layer(chunk),
            nodes * (self.base.vocab_size + 4 * self.base.hidden_size + self.context) * self.item,
            drafted * self.needs.vocabulary * self.item,
        )

    def _layer(self, tokens: int) -> int:
        """Bytes alive in a layer over `tokens`: the residual stream and its widest product."""
        base = self.base
        queries, keys = base.num_heads * base.head_dim, base.num_kv_heads * base.head_dim
        mlp = 3 * base.intermediate_size * self.item
        heads = (3 * queries + 3 * keys) * self.item + 2 * queries * torch.float32.itemsize
        stream = (3 * base.hidden_size + self.context) * self.item
        return tokens * (stream + max(mlp, heads))
