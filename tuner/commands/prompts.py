"""Prompt files of the command line, as token ids by category."""

from __future__ import annotations

from collections import defaultdict

MAX_PROMPT_TOKENS = 2048


def read_prompts(
    model: str, workloads: list[str], requests: int, max_new_tokens: int
) -> dict[str, list[tuple[int, ...]]]:
    """Tokenize the first `requests` prompts of every workload and group them by category."""
    from profiles.records import TrialConfig, WorkloadSpec
    from tuner.engines.base import Engine
    from tuner.workloads import build_requests, load_workload

    tokenizer = Engine.tokenizer(TrialConfig(model=model))
    groups: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for name in workloads:
        loaded = load_workload(name)
        count = min(requests, len(loaded.prompts) or requests)
        spec = WorkloadSpec(workload=name, requests=count, max_new_tokens=max_new_tokens)
        for request in build_requests(loaded, tokenizer, spec, MAX_PROMPT_TOKENS).requests:
            groups[request.category].append(request.prompt_token_ids)
    return groups
