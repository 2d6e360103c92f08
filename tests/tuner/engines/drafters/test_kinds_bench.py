"""The bench of drafter kinds, end to end on a tiny model: trains, walks and prints its tables."""

from __future__ import annotations

import torch

from tests.bench import drafter_kinds as bench
from tests.tuner.engines.tiny import edit_config, save_tiny_drafter
from tests.tuner.engines.training_tiny import VOCAB, save_model


def test_every_kind_gets_a_figure_in_every_row(tmp_path, capsys):
    torch.manual_seed(0)
    model = save_model(tmp_path / "model")
    edit_config(model, max_position_embeddings=4096)
    recurrent = save_tiny_drafter(tmp_path / "recurrent", vocab=VOCAB)
    arguments = [
        "--model", str(model), "--recurrent", str(recurrent), "--device", "cpu",
        "--seconds", "100000", "--steps", "2", "--turns", "120", "--prompts", "2",
        "--documents", "1", "--lengths", "60", "--max-new-tokens", "24", "--layers", "0",
        "--window", "16", "--training-documents", "4", "--tokens-per-step", "512",
        "--work", str(tmp_path / "work"),
    ]  # fmt: skip
    bench.main(arguments)
    printed = capsys.readouterr().out
    table = printed[printed.rindex("all answers") :].splitlines()
    kinds = ("recurrent", "retrieval", "causal LM", "local attention")
    assert all(f"{kind} {cell}" in table[1] for kind in kinds for cell in ("(1, 4)", "(4, 4)"))
    rows = {row.split("|")[1].strip(): row.split("|")[2:-1] for row in table[3:]}
    assert {"all", "chat", *bench.TASKS} <= rows.keys()
    assert all(len(row) == 9 for row in rows.values())
    assert all(1 <= float(figure) <= 5 for figure in rows["all"][1:])

    bench.main(arguments)  # what was trained is there: nothing is trained again
    assert "step" not in capsys.readouterr().out.split("prompts answered")[0]
