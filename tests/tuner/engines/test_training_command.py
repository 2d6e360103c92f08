"""`tuner train-drafter` from a prompt file to a drafter, and what it refuses."""

import json

import pytest
import typer

from tests.tuner.engines.training_tiny import save_model
from tuner.commands.drafter import train_drafter
from tuner.engines.redrafter.training.progress import read_progress
from tuner.engines.redrafter.training.rows import AnswerRows

TINY = {
    "draft_vocab_size": 60, "draft_len": 3, "max_steps": 8, "tokens_per_step": 512,
    "report_every": 2, "evaluate_every": 4, "device": "cpu", "json_output": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("tiny") / "model")


def prompt_file(folder, encoding="utf-8"):
    path = folder / "prompts.jsonl"
    lines = [json.dumps({"prompt": f"w{i} w{i + 9} größe"}, ensure_ascii=False) for i in range(40)]
    path.write_text("\n".join(lines), encoding=encoding)
    return path


def test_given_prompts_are_answered_and_trained_on(model, tmp_path, capsys):
    out = tmp_path / "drafter"
    file = prompt_file(tmp_path)
    train_drafter(out, model=str(model), prompt_file=str(file), prompts=30, **TINY)
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["steps"] == 8 and len(report["loss_by_draft"]) == 3
    assert report["acceptance_length"] >= 1 and report["verdict"]["text"]
    rows = AnswerRows.load(out.with_name("drafter-answers.safetensors"))
    asked = {tuple(rows.prompt(number)) for number in range(len(rows))}
    assert len(asked) <= 30 and all(len(prompt) == 6 for prompt in asked)  # 3 words, template
    assert "100% step 8, stage 2: loss" in printed.err and "tokens a step" in printed.err
    assert report["verdict"]["text"] in printed.err
    assert [row.step for row in read_progress(out)] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_len": 0}, "draft_len = 0: must be positive"),
        ({"kl_temperature": 0.0}, "temperature = 0.0"),
        ({"one_step_share": 0.6, "beam_share": 0.6}, "must not exceed 1"),
        ({"max_steps": 0}, "max_steps = 0"),
        ({"resume": True}, "holds no training to resume"),
        ({"prompt_file": None, "prompts": 0}, "prompts = 0"),
    ],
)
def test_bad_options_are_named(model, tmp_path, capsys, changes, message):
    settings = TINY | {"prompt_file": str(prompt_file(tmp_path))} | changes
    with pytest.raises(typer.Exit) as ended:
        train_drafter(tmp_path / "out", model=str(model), **settings)
    assert ended.value.exit_code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\xff\xfeg\x00r", "größe".encode("latin-1")])
def test_unreadable_prompt_files_are_named(model, tmp_path, capsys, content):
    path = tmp_path / "prompts.txt"
    path.write_bytes(content)
    with pytest.raises(typer.Exit) as ended:
        train_drafter(tmp_path / "out", model=str(model), prompt_file=str(path), **TINY)
    assert ended.value.exit_code == 2
    assert str(path) in capsys.readouterr().err
