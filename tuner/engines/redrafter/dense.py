"""The linear layer of wide weights: torch's, and on CUDA a kernel of its own for a single row."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_single_row(x: Tensor) -> bool:
    """Whether the kernel for one row takes `x` [..., in]; it has no backward."""
    return x.is_cuda and x.numel() == x.shape[-1] and not torch.is_grad_enabled()


class Linear(nn.Linear):
    """As `nn.Linear`, faster for one row on CUDA while nothing is differentiated."""

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        if not is_single_row(x):
            return super().forward(x)
        from tuner.engines.redrafter.kernels.one_row import one_row

        out = one_row(x.reshape(1, -1), self.weight, self.bias)
        return out.view(*x.shape[:-1], -1)

    def gated(self, x: Tensor) -> Tensor:
        """Return silu(first half) * second half of the outputs of one row, on CUDA."""
        from tuner.engines.redrafter.kernels.one_row import one_row

        return one_row(x, self.weight, self.bias, gated=True)
