"""A training that can be killed: all of its state in one safetensors file, replaced by rename.

Tensors are what the drafter learns in fp32, the optimizer's moments and the random generator; the
place in the data and the recipe are JSON in the file's header. Nothing is pickled.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from profiles.files import write_bytes
from tuner.engines.redrafter.training.spec import LoopSpec
from tuner.errors import BadInput

CHECKPOINT_FILE = "training.checkpoint"


@dataclass(slots=True)
class Place:
    """How far a training has come."""

    step: int = 0
    batches_read: int = 0
    positions: int = 0
    seconds: float = 0.0
    best_acceptance: float | None = None
    evaluations_since_best: int = 0


@dataclass(frozen=True, slots=True)
class Learner:
    """Everything that learning changes."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    chance: torch.Generator


def save_checkpoint(spec: LoopSpec, learner: Learner, place: Place) -> None:
    """Write the state whole. Raises StorageError."""
    tensors = {f"drafter.{name}": t for name, t in _learned(learner.network).items()}
    for index, moments in learner.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
    tensors["chance"] = learner.chance.get_state()
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"place": json.dumps(asdict(place)), "recipe": json.dumps(spec.recipe())}
    write_bytes(spec.out / CHECKPOINT_FILE, save(state, header))


def load_checkpoint(spec: LoopSpec, learner: Learner) -> Place:
    """Bring `learner` to where the checkpoint in `spec.out` left it.

    Raises:
        BadInput: a damaged checkpoint, or one of another recipe.
    """
    path = spec.out / CHECKPOINT_FILE
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata()
            _same_recipe(spec, json.loads(header["recipe"]))
            place = Place(**json.loads(header["place"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        _restore(learner, tensors)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise BadInput("out", str(path), f"is no checkpoint of this training ({error})") from error
    return place


def _same_recipe(spec: LoopSpec, theirs: dict[str, Any]) -> None:
    for name, ours in spec.recipe().items():
        if theirs.get(name) != ours:
            raise BadInput(name, ours, f"the training to resume has {theirs.get(name)!r}")


def _learned(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of `network` that training may change, by name."""
    named = network.named_parameters(remove_duplicate=False)
    frozen = {name for name, weight in named if not weight.requires_grad}
    return {name: t for name, t in network.state_dict().items() if name not in frozen}


def _restore(learner: Learner, tensors: dict[str, Tensor]) -> None:
    prefix = "drafter."
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    if differing := weights.keys() ^ _learned(learner.network).keys():
        raise ValueError(f"it lacks tensors or has others: {sorted(differing)}")
    learner.network.load_state_dict(weights, strict=False)
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, field = name.split(".")
            moments.setdefault(int(index), {})[field] = tensor
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": moments, "param_groups": groups})
    learner.chance.set_state(tensors["chance"])
