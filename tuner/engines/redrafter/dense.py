"""The linear layer of wide weights: torch's, and on CUDA kernels of its own for few rows."""

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
        rows = _rows(x)
        few = 0 < rows <= MOST_ROWS and x.dtype in HALVES
        if not few and rows != 1:
            return super().forward(x)
        from tuner.engines.redrafter.kernels.few_rows import few_rows
        from tuner.engines.redrafter.kernels.one_row import one_row

        single = rows == 1 and not (few and self._is_wide_and_shallow)
        multiply = one_row if single else few_rows
        out = multiply(x.reshape(rows, -1).contiguous(), self.weight, self.bias)
        return out.view(*x.shape[:-1], -1)

    @property
    def _is_wide_and_shallow(self) -> bool:
        """Whether the kernel for one row has more programs to start than bytes to read."""
        return self.in_features <= 1024 and self.out_features >= 16_384

    def gated(self, x: Tensor) -> Tensor:
        """Return silu(first half) * second half of the outputs of one row, on CUDA."""
        from tuner.engines.redrafter.kernels.one_row import one_row

        return one_row(x, self.weight, self.bias, gated=True)
