"""The layers of wide weights: torch's, and on CUDA kernels of their own for few rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

MOST_ROWS = 64  # of the kernel for few rows
HALVES = (torch.bfloat16, torch.float16)  # what it multiplies


def takes_kernels(x: Tensor) -> bool:
    """Whether kernels of our own, which have no backward, may be run on `x`."""
    return x.is_cuda and not torch.is_grad_enabled()


def is_single_row(x: Tensor) -> bool:
    """Whether the kernel for one row takes `x` [..., in]."""
    return _rows(x) == 1


def _rows(x: Tensor) -> int:
    """Return the rows of `x` [..., in], or 0 where kernels of our own cannot be used."""
    return x.numel() // x.shape[-1] if takes_kernels(x) else 0


class Linear(nn.Linear):
    """As `nn.Linear`, faster for few rows on CUDA while nothing is differentiated."""

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        out = self._few(x)
        return super().forward(x) if out is None else out.view(*x.shape[:-1], -1)

    def gated(self, x: Tensor) -> Tensor | None:
        """Return silu(first half) * second half of the outputs; None: no kernel does that."""
        return None if self._is_watched else self._few(x, gated=True)

    def summands(self, x: Tensor) -> Tensor:
        """Map [T, in] to [T, out], or to what is to be added up to it: [parts, T, out] in fp32."""
        out = None if self._is_watched else self._few(x, joined=False)
        return self(x) if out is None else out

    def _few(self, x: Tensor, gated: bool = False, joined: bool = True) -> Tensor | None:
        """Multiply by the kernel for so many rows, where there is one: [rows, out] or parts."""
        rows = _rows(x)
        half = x.dtype in HALVES
        if not 0 < rows <= MOST_ROWS or (rows > 1 and not half):
            return None
        from tuner.engines.redrafter.kernels.few_rows import few_rows
        from tuner.engines.redrafter.kernels.one_row import one_row
        from tuner.engines.redrafter.kernels.sliced_rows import sliced_rows, suits

        flat = x.reshape(rows, -1).contiguous()
        if rows == 1 and not (half and self._is_wide_and_shallow):
            return one_row(flat, self.weight, self.bias, gated=gated)
        if suits(rows, self.weight, gated):
            return sliced_rows(flat, self.weight, self.bias, gated)
        return few_rows(flat, self.weight, self.bias, gated, joined)

    @property
    def _is_watched(self) -> bool:
        """Whether calibration, say, wants to see what `forward` reads."""
        return bool(self._forward_pre_hooks or self._forward_hooks)

    @property
    def _is_wide_and_shallow(self) -> bool:
        """Whether the kernel for one row has more programs to start than bytes to read."""
        return self.in_features <= 1024 and self.out_features >= 16_384


class Embedding(nn.Embedding):
    """As `nn.Embedding`, by a kernel of our own on CUDA while nothing is differentiated."""

    def forward(self, index: Tensor) -> Tensor:
        """Return the rows of the table by `index` [...]: [..., size]."""
        if takes_kernels(self.weight):
            return rows_of(self.weight, index)
        return super().forward(index)


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index] of `table` [N, size], without a gradient."""
    if not table.is_cuda:
        return table[index]
    from tuner.engines.redrafter.kernels.take_rows import take_rows

    return take_rows(table, index)


def summands(linear: nn.Module, x: Tensor) -> Tensor:
    """Return `linear` of x [T, in]: [T, out], or what is to be added up to it, [parts, T, out]."""
    method = getattr(linear, "summands", linear)
    result: Tensor = method(x)
    return result
