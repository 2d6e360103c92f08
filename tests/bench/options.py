"""What the benches ask for on the command line in the same words."""

from __future__ import annotations

import argparse

from profiles.records import TrialConfig, WorkloadSpec


def add_served(
    parser: argparse.ArgumentParser, batch_size: int, requests: int, max_new_tokens: int
) -> None:
    """Add the options of `config_of` and `workload_of`, with these defaults."""
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--drafter")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--requests", type=int, default=requests)
    parser.add_argument("--max-new-tokens", type=int, default=max_new_tokens)


def add_tree(parser: argparse.ArgumentParser) -> None:
    """Add the beam width and draft length of a bench that measures one pair."""
    parser.add_argument("--beam-width", type=int, default=4)
    parser.add_argument("--draft-len", type=int, default=4)


def config_of(options: argparse.Namespace, beam_width: int, draft_len: int) -> TrialConfig:
    return TrialConfig(
        model=options.model,
        drafter=options.drafter,
        device=options.device,
        quantization=options.precision,
        beam_width=beam_width,
        draft_len=draft_len,
        batch_size=options.batch_size,
    )


def workload_of(options: argparse.Namespace) -> WorkloadSpec:
    return WorkloadSpec(requests=options.requests, max_new_tokens=options.max_new_tokens)


def trees(text: str) -> list[tuple[int, int]]:
    """Read beam widths and draft lengths, `WxD` by commas."""
    return [(int(w), int(d)) for w, d in (tree.split("x") for tree in text.split(","))]
