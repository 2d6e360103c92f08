"""The drafter contributes nothing."""

from __future__ import annotations

from profiles.advisor import cite
from profiles.advisor.evidence import Evidence
from profiles.advisor.finding import NOT_SHOWN, Finding
from profiles.records import ServeMetrics

# Source: an untrained drafter on SmolLM2-135M-Instruct gave 1.05 (our measurement); broken
# drafters that nobody noticed gave 1.00 to 1.05 (NVIDIA/TensorRT-LLM#2155, SpecForge#310).
IDLE_ACCEPTANCE_LENGTH = 1.05


def is_idle(metrics: ServeMetrics) -> bool:
    """Whether a step commits hardly more than the token that plain decoding gives."""
    return metrics.acceptance_length <= IDLE_ACCEPTANCE_LENGTH


def idle_drafter(evidence: Evidence) -> list[Finding]:
    """Find a drafter whose tokens are next to never accepted on real text."""
    metrics = evidence.speculated
    if metrics is None or evidence.is_shape_only or not is_idle(metrics):
        return []
    config, temperature = evidence.result.config, evidence.result.workload.temperature
    causes = [
        f"{NOT_SHOWN}the prompts are rendered with another chat template than the drafter saw",
        f"{NOT_SHOWN}the drafter belongs to another model or tokenizer",
        f"{NOT_SHOWN}the drafter reads another hidden state than it was trained on (layer, norm)",
        f"{NOT_SHOWN}the drafter's weights are untrained, or their names did not match on loading",
    ]
    words = (
        "Run `tuner eval-drafter` on a few prompts in the training format. If it also gives about "
        "1.0, check the drafter's files and training; if not, compare the rendered prompts."
    )
    if temperature > 0:
        causes.insert(0, f"temperature = {temperature:g}: sampled tokens are harder to guess")
        words = f"Measure once at temperature 0. {words}"
    return [
        Finding(
            rule="idle_drafter",
            severity="problem",
            title="The drafter contributes nothing: a step commits hardly more than one token.",
            evidence=[cite.acceptance_length(metrics, config.draft_len)],
            causes=causes,
            next_experiment=f"{words} Sweeping beam_width or draft_len cannot help before that.",
            knobs={"temperature": [0.0]} if temperature > 0 else {},
        )
    ]
