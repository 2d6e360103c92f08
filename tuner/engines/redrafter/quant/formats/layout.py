"""What every layout of a quantized checkpoint can say, and how one is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from tuner.engines.redrafter.quant.layer import QuantizedLinear
from tuner.errors import BadInput

Weights = dict[str, Tensor]


class Layout(ABC):
    """How one family of tools stores a quantized linear layer."""

    marker: str
    """The tensor that only a quantized layer has."""

    @abstractmethod
    def read(self, weights: Weights, name: str) -> QuantizedLinear | Tensor:
        """Return the layer called `name`: its codes as stored, or its weight where ours do not fit.

        Raises:
            BadInput: a tensor is missing or of another shape than the layout says.
        """

    def holds(self, weights: Weights, name: str) -> bool:
        """Whether the layer called `name` is quantized in this checkpoint."""
        return f"{name}.{self.marker}" in weights

    def take(self, weights: Weights, name: str, tensor: str) -> Tensor:
        """Return one tensor of a layer. Raises BadInput if it is missing."""
        try:
            return weights[f"{name}.{tensor}"]
        except KeyError as error:
            raise BadInput(
                "model", f"{name}.{tensor}", "is missing; the checkpoint is incomplete"
            ) from error


def unsupported(field: str, value: object, instead: str) -> BadInput:
    """Return the refusal of a layout, naming what is read instead."""
    return BadInput(f"quantization_config.{field}", value, f"is not read; use {instead}")
