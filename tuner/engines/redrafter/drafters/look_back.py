"""The part of a local-attention drafter that looks back, and its directory.

A recurrent drafter sees one hidden state of the base model; what the text said further back it must
find in there. `LookBack` lets every draft step search itself: with its state as query it attends to
keys and values made of the contexts of the last `window` positions, and what it finds joins what
the head reads:

    a_t = Wo attention(Wq [s_t, p], Wk c, Wv c);  x_t = (p + a_t) + Ps s_t

Queries and keys are rotated by their positions, which tells near from far. The directory holds this
part and, under `recurrent`, the whole recurrent drafter that it adds to.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tuner.engines.redrafter.checkpoint import load_drafter, save_drafter
from tuner.engines.redrafter.config import LlamaConfig, RopeConfig
from tuner.engines.redrafter.drafter import Drafter, DrafterConfig
from tuner.engines.redrafter.rope import rotation_table
from tuner.errors import BadInput
from tuner.models.drafters import LOCAL_ATTENTION

_WEIGHTS = "attention.safetensors"


@dataclass(frozen=True, slots=True)
class LookBackConfig:
    """How far and how finely it looks back."""

    window: int = 512  # positions
    num_heads: int = 8
    head_dim: int = 64
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("window", "num_heads", "head_dim", "rope_theta"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise BadInput(name, value, "must be a positive number")


class LookBack(nn.Module):
    """Attention of a draft step over remembered contexts. T counts tokens of any shape."""

    def __init__(self, config: LookBackConfig, drafter: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        size = config.num_heads * config.head_dim
        self.query = nn.Linear(drafter.state_width + drafter.exit_dim, size, bias=False)
        self.key_value = nn.Linear(drafter.context_size, 2 * size, bias=False)
        self.output = nn.Linear(size, drafter.exit_dim, bias=False)

    def rotation(self, positions: int) -> Tensor:
        """Return the rotary table [positions, 2, head_dim], fp32."""
        rope = RopeConfig(theta=self.config.rope_theta)
        return rotation_table(rope, self.config.head_dim, positions)

    def remember(self, context: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
        """Make keys and values [T, heads, dim] of contexts [T, context_size].

        `rotation` [T, 2, head_dim] holds the table's rows at their positions.
        """
        heads = self.key_value(context).unflatten(-1, (2, -1, self.config.head_dim))
        key, value = heads.unbind(-3)
        return _rotate(key, rotation), value

    def ask(self, p: Tensor, state: Tensor, rotation: Tensor) -> Tensor:
        """Make queries [T, heads, dim] of p [T, exit_dim] and states [T, state_width]."""
        query = self.query(torch.cat((state, p), dim=-1))
        return _rotate(query.unflatten(-1, (-1, self.config.head_dim)), rotation)


def _rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotate heads [T, heads, dim] by `rotation` [T, 2, dim], with gradients."""
    cos, sin = rotation.unsqueeze(-2).unbind(-3)
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin


def save_local_attention(recurrent: Drafter, look_back: LookBack, folder: Path) -> None:
    """Write both parts into `folder`, its config.json last."""
    save_drafter(recurrent, folder / "recurrent")
    state = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in look_back.state_dict().items()
    }
    settings = {"model_type": LOCAL_ATTENTION, **asdict(look_back.config)}
    scratch = folder / ".saving"
    for name in (_WEIGHTS, "config.json"):
        if name == _WEIGHTS:
            save_file(state, str(scratch), {"format": "pt"})
        else:
            scratch.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        scratch.replace(folder / name)


def read_look_back_config(folder: Path) -> LookBackConfig:
    """Read how far and how finely the drafter in `folder` looks back. Raises BadInput."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        raw.pop("model_type", None)
        return LookBackConfig(**raw)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise BadInput("drafter", str(folder), f"cannot be read ({error})") from error


def load_local_attention(folder: Path, base: LlamaConfig) -> tuple[Drafter, LookBack]:
    """Read both parts, checked against the base model.

    Raises:
        BadInput: corrupt, incomplete, or made for another base model.
    """
    recurrent, config = load_drafter(folder / "recurrent", base), read_look_back_config(folder)
    try:
        state = load_file(str(folder / _WEIGHTS))
        with torch.device("meta"):
            look_back = LookBack(config, recurrent.config)
        look_back.load_state_dict(state, assign=True)
    except (OSError, SafetensorError) as error:
        raise BadInput("drafter", str(folder), f"cannot be read ({error})") from error
    except RuntimeError as error:  # tensors that lack, are too many or of another shape
        problem = " ".join(str(error).split())
        raise BadInput(
            "drafter", str(folder), f"does not fit its config.json: {problem}"
        ) from error
    return recurrent, look_back
