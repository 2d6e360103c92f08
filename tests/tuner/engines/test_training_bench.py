"""The training bench, end to end on the CPU: children of its own, and a table."""

from tests.bench import drafter_training as bench
from tests.tuner.engines.training_tiny import random_prompts, save_answers, save_model


def test_the_bench_prints_a_row_for_every_variant(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "EVALUATION_SHARE", 0.5)
    model = save_model(tmp_path / "model")
    cache = tmp_path / "cache"
    save_answers(model, cache / "answers.safetensors", random_prompts(60, 6, seed=1))
    names = ["stages 1, 2 and 3"]
    bench.main(
        [
            "--model", str(model), "--device", "cpu", "--cache", str(cache), "--steps", "20",
            "--tokens-per-step", "128", "--draft-vocab-size", "60",
            "--requests", "6", "--max-new-tokens", "24", "--seconds", "120",
            *(part for name in names for part in ("--only", name)),
        ]
    )  # fmt: skip
    printed = capsys.readouterr().out.splitlines()
    for name in names:
        [row] = [line for line in printed if line.startswith(name)]
        steps, *cells, loss, _ = row[36:].split()
        assert steps == "20" and float(loss) > 0
        assert len(cells) == 4 and all(1 <= float(cell) <= 6 for cell in cells)
