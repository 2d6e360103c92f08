"""A recurrent drafter that also attends to the base model's last hidden states, as draft method.

Keys and values are made once a position and kept in a ring of `window` slots a place, so that
drafting costs the same however long the text is.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuner.engines.redrafter.beam import extend, lengthen, pick
from tuner.engines.redrafter.drafter import Drafter
from tuner.engines.redrafter.drafters.base import DraftMethod, repeat_to_width
from tuner.engines.redrafter.drafters.look_back import LookBack
from tuner.engines.redrafter.linear import module_bytes


class LocalAttentionDraft(DraftMethod):
    """Beam search that looks back. All of a place's memory is on the device."""

    graph_safe: ClassVar[bool] = True

    def __init__(
        self, recurrent: Drafter, look_back: LookBack, embed: nn.Embedding, dtype: torch.dtype
    ) -> None:
        self.recurrent, self.look_back, self.embed, self.dtype = recurrent, look_back, embed, dtype
        self.window = look_back.config.window
        self.context_layers = recurrent.config.context_layers
        self.context_window = self.window
        self.max_draft_len = recurrent.config.trained_draft_len
        self.reserve(0, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of weights and of what is remembered."""
        held = sum(t.numel() * t.element_size() for t in (self.ring, self.rotation))
        return module_bytes(self.recurrent) + module_bytes(self.look_back) + held

    def reserve(self, places: int, positions: int) -> None:
        """Make the ring."""
        config, device = self.look_back.config, self.embed.weight.device
        shape = (2, 1 + places, self.window, config.num_heads, config.head_dim)
        self.ring = torch.zeros(shape, device=device, dtype=self.dtype)  # keys, values
        self.length = torch.zeros(1 + places, dtype=torch.long, device=device)  # contexts so far
        self.rotation = self.look_back.rotation(positions).to(device, self.dtype)

    def join(self, place: int, tokens: list[int], context: Tensor) -> None:
        """Remember the end of the prompt."""
        prompt = len(tokens) - 1
        newest = context[-self.window :]
        self.length[place] = prompt - len(newest)
        self.observe([place], [tokens[1:][-len(newest) :]], newest.unsqueeze(0))

    def propose(
        self, places: Tensor, true_token: Tensor, context: Tensor, beam_width: int, draft_len: int
    ) -> Tensor:
        """Beam search; every step looks back once."""
        net, length = self.recurrent, self.length[places]
        keys, values = self.ring[:, places].transpose(2, 3)
        # NOTE: a place of nobody sees one slot of zeros; nothing at all would give NaN.
        filled = length.clamp(min=1).view(-1, 1, 1, 1)
        seen = torch.arange(self.window, device=length.device) < filled
        beams = true_token.view(-1, 1, 1)
        p, d = net.start(context.unsqueeze(1), self._embed(beams))
        state, score = torch.zeros_like(d), d.new_zeros(d.shape[:2], dtype=torch.float32)
        for drafted in range(draft_len):
            state = net.next_state(self._embed(beams), state, d)
            position = (length + drafted).unsqueeze(1)
            rotation = self.rotation[position]
            query = self.look_back.ask(p.expand(-1, state.shape[1], -1), state, rotation)
            found = F.scaled_dot_product_attention(
                query.transpose(1, 2), keys, values, attn_mask=seen
            )
            looked = self.look_back.output(found.transpose(1, 2).flatten(2))
            score, parent, token = extend(net.logits(p + looked, state), score, beam_width)
            beams = lengthen(beams, parent, net.draft_vocab[token])
            state = pick(state, parent)
        return repeat_to_width(beams, beam_width)

    def observe(self, places: list[int], tokens: list[list[int]], context: Tensor) -> None:
        """Remember the contexts that the tokens were chosen from."""
        device = self.length.device
        counts = [len(new) for new in tokens]
        column = torch.tensor([i for count in counts for i in range(count)], device=device)
        index = torch.tensor([row for row, n in enumerate(counts) for _ in range(n)], device=device)
        place = torch.tensor(places, device=device)
        position = self.length[place][index] + column
        key, value = self.look_back.remember(context[index, column], self.rotation[position])
        slot = position % self.window
        self.ring[0, place[index], slot], self.ring[1, place[index], slot] = key, value
        self.length[place] += torch.tensor(counts, device=device)

    def leave(self, place: int) -> None:
        """Forget the text."""
        self.length[place] = 0

    def _embed(self, beams: Tensor) -> Tensor:
        return self.embed(beams[..., -1]).to(self.dtype)
