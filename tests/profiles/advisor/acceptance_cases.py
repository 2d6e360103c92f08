"""Profiles for the rules on acceptance, beams and text."""

from advisor_profiles import Case, evidence, metrics, result, speedup, with_metrics

from profiles.records import TextCheck

CASES = {
    "low_acceptance": Case(
        fires=evidence(
            result(
                metrics=metrics(acceptance_length=1.84, path_acceptance_rate=0.21),
                speedup=speedup(0.97, 0.93, 1.01),
            )
        ),
        cites=[
            "path_acceptance_rate = 21.0% (under 40%)",
            "acceptance_length = 1.84 tokens per step (at most 5 at draft_len 4)",
            "speedup = 0.97, ci95 0.93 to 1.01 over 8 rounds",
        ],
        silent=with_metrics(acceptance_length=2.6, path_acceptance_rate=0.40),
    ),
    "idle_drafter": Case(
        fires=with_metrics(acceptance_length=1.05, path_acceptance_rate=0.0125),
        cites=["acceptance_length = 1.05 tokens per step (at most 5 at draft_len 4)"],
        silent=with_metrics(acceptance_length=1.06, path_acceptance_rate=0.015),
    ),
    "collapsing_beams": Case(
        fires=evidence(
            result(metrics=metrics(tree_nodes_mean=8.5, beam_diversity=7.5 / 16)),
            siblings=[
                result(3, {"beam_width": 2}, metrics=metrics(acceptance_length=2.78)),
                result(4, {"beam_width": 1}, metrics=metrics(acceptance_length=2.4)),
                result(5, {"beam_width": 2, "batch_size": 4}),
            ],
        ),
        cites=[
            "beam_diversity = 0.47, where beams that differ only in their last token give 0.44",
            "tree_nodes_mean = 8.5 nodes of at most 17",
            "trial 3 with beam_width 2 accepts the same: acceptance_length = 2.78 tokens per step "
            "(at most 5 at draft_len 4)",
        ],
        silent=with_metrics(tree_nodes_mean=9.0, beam_diversity=0.5),
    ),
    "text_differs": Case(
        fires=evidence(
            result(
                text=TextCheck(
                    requests=16, equal=14, first_difference="request a, output token 7, margin 0.01"
                )
            )
        ),
        cites=[
            "2 of 16 requests differ from the baseline in bf16",
            "first difference: request a, output token 7, margin 0.01",
        ],
        silent=evidence(result(text=TextCheck(requests=16, equal=16))),
    ),
}
