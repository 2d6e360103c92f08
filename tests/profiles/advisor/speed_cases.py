"""Profiles for the rules on speed-up and latency."""

from advisor_profiles import (
    Case,
    evidence,
    metrics,
    percentiles,
    result,
    speedup,
    steps,
    with_metrics,
)

from profiles.records import TimeShare

SLOW = {"config": {"batch_size": 8}, "speedup": speedup(0.8, 0.77, 0.83)}
TAIL = metrics(itl_ms=percentiles(20.0, 80.0))

CASES = {
    "useless_speculation": Case(
        fires=evidence(
            result(9, **SLOW),
            siblings=[
                result(1),
                result(2, {"batch_size": 4}, speedup=speedup(1.1, 1.05, 1.15)),
                result(3, {"batch_size": 6}, speedup=speedup(1.0, 0.95, 1.05)),
                result(4, {"batch_size": 6, "beam_width": 2}),
            ],
        ),
        cites=[
            "speedup = 0.80, ci95 0.77 to 0.83 over 8 rounds",
            "acceptance_length = 2.80 tokens per step (at most 5 at draft_len 4)",
            "tree_nodes_mean = 11.5 nodes verified per request and step, "
            "time_share.draft = 20.0%, verify = 60.0%",
            "trial 2 with the same shape at batch_size 4: speedup = 1.10, ci95 1.05 to 1.15 over "
            "8 rounds; the crossover lies between batch_size 4 and 8",
        ],
        silent=evidence(result(speedup=speedup(0.99, 0.97, 1.01))),
    ),
    "wide_interval": Case(
        fires=evidence(result(speedup=speedup(1.5, 1.35, 1.65))),
        cites=[
            "speedup = 1.50, ci95 1.35 to 1.65 over 8 rounds: 20.0% wide, wanted at most 10%",
            "16 requests at batch_size 1",
        ],
        silent=evidence(result(speedup=speedup(1.5, 1.43, 1.57))),
    ),
    "host_gaps": Case(
        fires=with_metrics(time_share=TimeShare(draft=0.2, verify=0.4, accept=0.1, host=0.3)),
        cites=["time_share.host = 30.0%: 6.00 ms of step_ms_mean 20.00 ms"],
        silent=with_metrics(time_share=TimeShare(draft=0.2, verify=0.5, accept=0.1, host=0.2)),
    ),
    "prefill_tail": Case(
        fires=evidence(result(metrics=TAIL), steps=steps(reading=10, reading_ms=80.0)),
        cites=[
            "itl_ms: p95 = 80.0 ms, 4.0 times p50 20.0 ms",
            "10 steps read prompts beside generation and took 80.0 ms on average, "
            "190 others 20.0 ms",
        ],
        silent=evidence(result(metrics=TAIL), steps=steps(reading=10, reading_ms=29.0)),
    ),
}
