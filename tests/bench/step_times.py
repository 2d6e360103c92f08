"""Where the steps of real trials go: `python -m tests.bench.step_times [--help]`.

Measures one trial for every tree on the same prompts, each paired with its baseline, and prints
phases and gaps against wall time, the verify pass against the device's measured limits, how many
nodes are free by limits and by the measured trees, and which share of step time bought nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from profiles.advisor import Evidence, advise
from profiles.efficiency import efficiency
from profiles.records import STEP_PHASES, StepAnatomy, TrialResult
from profiles.roofline import roofline
from profiles.trial_folder import TrialFolder
from profiles.verify_curve import verify_curve
from tests.bench.options import add_served, config_of, trees, workload_of
from tuner.trial import run_trial


def main() -> None:
    options = parsed()
    spec = workload_of(options)
    with tempfile.TemporaryDirectory() as root:
        folders = [TrialFolder(Path(root) / str(k), k) for k in range(len(options.trees))]
        results = [
            run_trial(folder, config_of(options, *tree), spec)
            for folder, tree in zip(folders, options.trees, strict=True)
        ]
        print(f"{results[0].device}, {results[0].precision}, {results[0].compute}")
        print(f"limits {results[0].limits}")
        for folder, result in zip(folders, results, strict=True):
            print("\n".join(told(folder, result, [r for r in results if r is not result])))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_served(parser, batch_size=1, requests=16, max_new_tokens=128)
    parser.add_argument("--trees", type=trees, default=trees("1x4,4x4,8x5"), help="WxD, by commas")
    return parser.parse_args()


def told(folder: TrialFolder, result: TrialResult, others: list[TrialResult]) -> list[str]:
    """The trial in words."""
    lines = ["", f"## {result.config.describe()}"]
    if result.metrics is None or result.anatomy is None:
        return [*lines, f"not measured: {result.error}"]
    steps, requests = folder.steps(), folder.requests()
    lines += times("trial", result.anatomy)
    if result.baseline_anatomy:
        lines += times("baseline", result.baseline_anatomy)
    spent = efficiency(steps, result.metrics, result.energy, verify_curve(result, others))
    lines += [
        f"roofline {roofline(result, steps, requests, others).model_dump_json(indent=1)}",
        f"efficiency {spent.model_dump_json(indent=1)}",
    ]
    evidence = Evidence(result, siblings=others, steps=steps, requests=requests)
    return lines + [f"{f.rule}: {f.title} {f.evidence}" for f in advise(evidence)]


def times(name: str, anatomy: StepAnatomy) -> list[str]:
    parts = [*((phase, anatomy.phases[phase]) for phase in STEP_PHASES), ("gaps", anatomy.gaps)]
    return [
        f"{name}: {anatomy.steps} steps in {anatomy.wall_ms:.1f} ms, "
        f"phases and gaps are {anatomy.accounted_share:.2%} of it",
        *(
            f"  {part:<8} mean {t.mean_ms:8.3f} p50 {t.p50_ms:8.3f} p95 {t.p95_ms:8.3f} ms "
            f"{t.share:7.2%}"
            for part, t in parts
        ),
    ]


if __name__ == "__main__":
    main()
