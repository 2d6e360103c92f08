"""A small causal LM of the same tokenizer as drafter, with keys and values of its own.

Drafted tokens are laid behind the text in the cache, those of one step side by side, and a mask
shows each beam its own ancestors only. So nothing is ever moved; what was drafted is forgotten by
being written over, when the tokens that were committed are read in the next step.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tuner.engines.redrafter.beam import extend, lengthen, pick
from tuner.engines.redrafter.drafters.base import DraftMethod, repeat_to_width
from tuner.engines.redrafter.linear import module_bytes
from tuner.engines.redrafter.llama import Llama
from tuner.errors import BadInput


class CausalLMDraft(DraftMethod):
    """Beam search over a causal LM that reads along."""

    graph_safe: ClassVar[bool] = False

    def __init__(self, model: Llama, vocab_size: int) -> None:
        """`vocab_size` is how many tokens the base model knows; others are never proposed."""
        self.model, self.vocab_size = model, vocab_size
        self.cache = torch.empty(0)  # [layers, 2, 1 + places, slots, kv_heads, head_dim]
        self._unread: dict[int, list[int]] = {}
        self._read: dict[int, int] = {}  # tokens in the cache

    @property
    def nbytes(self) -> int:
        """Bytes of weights, keys and values."""
        return module_bytes(self.model) + self.cache.numel() * self.cache.element_size()

    def reserve(self, places: int, positions: int) -> None:
        """Make the cache."""
        config = self.model.config
        if positions > config.max_position:
            raise BadInput(
                "drafter", f"{config.max_position} positions", f"{positions} are needed to draft"
            )
        like = self.model.norm.weight
        self.model.prepare_positions(positions, like.device, like.dtype)
        self.cache = like.new_zeros(
            config.num_layers, 2, 1 + places, positions, config.num_kv_heads, config.head_dim
        )
        self._unread, self._read = {}, {}

    def join(self, place: int, tokens: list[int], context: Tensor) -> None:
        """Read the prompt; the first token is read when it is drafted from."""
        self._unread[place], self._read[place] = tokens[:-1], 0
        if tokens[:-1]:
            self._catch_up([place])
        self._unread[place] = tokens[-1:]

    def propose(
        self, places: Tensor, true_token: Tensor, context: Tensor, beam_width: int, draft_len: int
    ) -> Tensor:
        """Read what was committed since, then search."""
        root = true_token.view(-1, 1, 1)
        known = [row for row, place in enumerate(places.tolist()) if place in self._read]
        beams = root.repeat(1, beam_width, 1 + draft_len)
        if known:
            at = places[known].tolist()
            hidden = self._catch_up(at)
            found = self._search(at, root[known], hidden, beam_width, draft_len)
            beams[known] = repeat_to_width(found, beam_width)
        return beams

    def observe(self, places: list[int], tokens: list[list[int]], context: Tensor) -> None:
        """Note what is to be read."""
        for place, new in zip(places, tokens, strict=True):
            self._unread[place] += new

    def leave(self, place: int) -> None:
        """Forget the text."""
        self._unread.pop(place, None)
        self._read.pop(place, None)

    def _catch_up(self, places: list[int]) -> Tensor:
        """Read the unread tokens; return the hidden state after the last one, [B, hidden]."""
        device = self.cache.device
        unread = [self._unread[place] for place in places]
        count = torch.tensor([len(tokens) for tokens in unread], device=device).unsqueeze(1)
        start = torch.tensor([self._read[place] for place in places], device=device).unsqueeze(1)
        width = max(map(len, unread))
        padded = [tokens + tokens[-1:] * (width - len(tokens)) for tokens in unread]
        # NOTE: padding repeats the last token in its own slot, so that it changes nothing.
        position = start + torch.arange(width, device=device).clamp(max=count - 1)
        reach = int((start + count).max())
        seen = torch.arange(reach, device=device) <= position.unsqueeze(-1)
        hidden = self._forward(
            places, torch.tensor(padded, device=device), position, position, seen
        )
        for place, tokens in zip(places, unread, strict=True):
            self._read[place] += len(tokens)
            self._unread[place] = []
        return hidden.gather(1, (count - 1).unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))

    def _search(
        self, places: list[int], root: Tensor, hidden: Tensor, beam_width: int, draft_len: int
    ) -> Tensor:
        """Beam search from `root` [B, 1, 1] and the hidden state [B, 1, hidden] after it."""
        device = root.device
        read = torch.tensor([self._read[place] for place in places], device=device).view(-1, 1)
        reach = max(self._read[place] for place in places) + beam_width * (draft_len - 1)
        seen = (torch.arange(reach, device=device) < read).unsqueeze(1)  # [B, W, reach]
        beams, score = root, torch.zeros(len(root), 1, device=device)
        for drafted in range(draft_len):
            logits = self.model.logits(hidden)[..., : self.vocab_size].contiguous()
            score, parent, token = extend(logits, score, beam_width)
            beams = lengthen(beams, parent, token)
            if drafted + 1 == draft_len:
                break
            beam = torch.arange(token.shape[1], device=device)
            slots = read + drafted * beam_width + beam
            seen = pick(seen, parent).scatter(2, slots.unsqueeze(-1), True)
            position = (read + drafted).expand_as(token)
            hidden = self._forward(places, token, position, slots, seen)
        return beams

    def _forward(
        self, places: list[int], tokens: Tensor, position: Tensor, slots: Tensor, seen: Tensor
    ) -> Tensor:
        """Read tokens [B, T] at positions [B, T] into slots [B, T], each seeing `seen` [B, T, S].

        Returns:
            Hidden states [B, T, hidden].
        """
        row = torch.tensor(places, device=self.cache.device)
        reach = seen.shape[-1]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            store = self.cache[layer]
            for which, new in enumerate((k, v)):
                store[which, row.unsqueeze(1), slots] = new.view(*tokens.shape, *new.shape[1:])
            keys, values = store[:, row, :reach].transpose(2, 3)
            queries = q.view(*tokens.shape, *q.shape[1:]).transpose(1, 2)
            out = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=seen.unsqueeze(1), enable_gqa=True
            )
            return out.transpose(1, 2).flatten(0, 1)

        hidden, _ = self.model(tokens.flatten(), position.flatten(), attend)
        return hidden.view(*tokens.shape, -1)
