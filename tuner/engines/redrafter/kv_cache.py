"""KV memory in blocks.

One tensor holds every layer's keys and values as rows of slots. A sequence owns whole blocks of
`BLOCK` slots; position p of a sequence lives in slot `table[p]`. Block 0 is nobody's: it takes the
writes of unused tree nodes.

A cache may keep e4m3, half the bytes of bf16. It needs no scales: keys and values of Llama models
lie far within its range of +-448 (SmolLM2-135M: 23 and 15 at most), and being a floating-point
format it rounds small values as finely as large ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.quant.fp8 import E4M3, LARGEST
from tuner.engines.redrafter.quant.support import refused
from tuner.errors import UnsupportedConfig

BLOCK = 16


class BlockPool:
    """Hands out blocks, in one run when there is one, so that short gathers stay cheap."""

    def __init__(self, blocks: int) -> None:
        self._free = list(range(1, blocks))

    def __len__(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """Return `count` blocks, or None when there are not as many."""
        if count > len(self._free):
            return None
        start = self._first_run(count)
        taken = self._free[start : start + count]
        del self._free[start : start + count]
        return taken

    def give(self, blocks: list[int]) -> None:
        """Take blocks back."""
        self._free = sorted(self._free + blocks)

    def _first_run(self, count: int) -> int:
        for start in range(len(self._free) - count + 1):
            if self._free[start + count - 1] - self._free[start] == count - 1:
                return start
        return 0


class KVCache:
    """Keys and values of all layers: [layers, 2, slots, kv_heads, head_dim]."""

    def __init__(
        self,
        config: LlamaConfig,
        blocks: int,
        device: torch.device,
        dtype: torch.dtype,
        kept: torch.dtype | None = None,
    ) -> None:
        """Make a cache of `kept` numbers, or of `dtype`, in which attention reads it."""
        self.dtype = dtype
        self.data = torch.zeros(
            config.num_layers,
            2,
            blocks * BLOCK,
            config.num_kv_heads,
            config.head_dim,
            device=device,
            dtype=kept or dtype,
        )
        self.pool = BlockPool(blocks)
        self.blocks = blocks
        self.group = config.num_heads // config.num_kv_heads  # query heads of a KV head

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return self.nbytes // self.blocks

    @property
    def nbytes(self) -> int:
        """Bytes of the whole cache."""
        return self.data.numel() * self.data.element_size()

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks that sequences own now."""
        return (self.blocks - 1 - len(self.pool)) * self.block_bytes

    def slots_of(self, blocks: list[int]) -> Tensor:
        """Return the slot of every position of a sequence that owns `blocks`, in order."""
        first = torch.tensor(blocks, device=self.data.device).unsqueeze(1) * BLOCK
        return (first + torch.arange(BLOCK, device=self.data.device)).flatten()

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] of one layer."""
        for side, new in zip(self.data[layer], (keys, values), strict=True):
            if side.dtype == E4M3:
                new = new.clamp(-LARGEST, LARGEST)
            _bits(side).index_copy_(0, slots, _bits(new.to(side.dtype)))

    def read(self, layer: int, slots: Tensor | slice) -> Tensor:
        """Return keys and values [2, B, S, kv_heads, head_dim] of `slots` [B, S] of one layer.

        A slice stands for one run of slots, B = 1.
        """
        data = self.data[layer]
        if isinstance(slots, slice):
            return data[:, slots].unsqueeze(1).to(self.dtype)
        picked = _bits(data).index_select(1, slots.flatten()).view(data.dtype)
        return picked.view(2, *slots.shape, *data.shape[2:]).to(self.dtype)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy slots [B, L] of every layer; all of a row are read before any of it is written.

        No slot is in two rows but 0, which is nobody's and may only go to itself.
        """
        bits = _bits(self.data)
        if bits.is_cuda:
            from tuner.engines.redrafter.kernels.move_slots import move_slots

            return move_slots(bits, source, target)
        bits.index_copy_(2, target.flatten(), bits.index_select(2, source.flatten()))
        return None


def _bits(x: Tensor) -> Tensor:
    """View FP8 as bytes: torch copies them by index on every device."""
    return x.view(torch.uint8) if x.dtype == E4M3 else x


def kept_dtype(name: str, device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Return what a cache called `name` keeps on `device` where activations are in `dtype`.

    Raises:
        UnsupportedConfig: FP8 on a GPU that cannot convert it.
    """
    if name == "auto":
        return dtype
    if device.type == "cuda" and "fp8" in refused(device):
        raise UnsupportedConfig(
            "kv_cache_dtype", name, "needs a GPU of compute capability 8.9 or higher; use auto"
        )
    return E4M3


def blocks_for(tokens: int) -> int:
    """Return how many blocks hold `tokens` positions."""
    return -(-tokens // BLOCK)


def cache_bytes(config: LlamaConfig, blocks: int, dtype: torch.dtype) -> int:
    """Return what a cache of `blocks` will take, before it is made."""
    return blocks * BLOCK * position_bytes(config, dtype)


def position_bytes(config: LlamaConfig, dtype: torch.dtype) -> int:
    """Return the bytes of one position's keys and values over all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize
