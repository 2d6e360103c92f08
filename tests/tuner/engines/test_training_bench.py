"""The training bench, end to end on the CPU: children of its own, and a table."""

from safetensors.torch import load_file

from tests.bench import drafter_training as bench
from tests.tuner.engines.training_tiny import random_prompts, save_answers, save_model
from tuner.engines.redrafter.training.train import train_drafter


def test_the_bench_prints_a_row_for_every_variant(tmp_path, capsys):
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
        steps, *cells, top1, _ = row[36:].split()
        assert steps == "20" and 0 < float(top1) <= 1
        assert len(cells) == 4 and all(1 <= float(cell) <= 6 for cell in cells)


def test_every_variant_learns_something_else(tmp_path):
    """Four steps each: all of them run, and their drafters differ."""
    model = save_model(tmp_path / "model")
    cache = tmp_path / "cache"
    save_answers(model, cache / "answers.safetensors", random_prompts(30, 6, seed=1), 12)
    options = bench.parse(
        ["--model", str(model), "--device", "cpu", "--cache", str(cache), "--steps", "4",
         "--tokens-per-step", "128", "--draft-vocab-size", "60"]
    )  # fmt: skip
    heads = {}
    for name in bench.VARIANTS:
        spec = bench.train_spec(options, name, bench.folder_of(options, name))
        train_drafter(spec)
        weights = load_file(str(spec.out / "drafter.safetensors"))
        heads[name] = weights["head.weight"].float().numpy().tobytes()
    # These answers are greedy, so that their text is the model's choice.
    choice, text = (f"cross-entropy on the {what}" for what in ("model's choice", "text"))
    assert heads.pop(text) == heads[choice]
    assert len(set(heads.values())) == len(heads)
