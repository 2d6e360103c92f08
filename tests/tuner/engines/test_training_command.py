"""`tuner train-drafter` from a prompt file to a drafter, and what it refuses."""

import json

import numpy as np
import pytest
import typer

from tests.tuner.engines.tiny import save_tiny_drafter
from tests.tuner.engines.training_tiny import CPU, VOCAB, save_model
from tuner.commands.drafter import train_drafter
from tuner.commands.drafter_kinds import KINDS
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.drafters.causal_lm_training import some_layers
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.training.forward import load_frozen
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


@pytest.mark.parametrize("kind", ["causal_lm", "local_attention"])
def test_every_kind_can_be_trained_and_drafts(model, tmp_path, capsys, kind):
    begin_with = save_tiny_drafter(tmp_path / "recurrent", vocab=VOCAB, context_layers=(1,))
    own = {"layers": "1"} if kind == "causal_lm" else {"begin_with": str(begin_with), "window": 8}
    file = str(prompt_file(tmp_path))
    out = tmp_path / "drafter"
    train_drafter(out, model=str(model), kind=kind, prompt_file=file, prompts=30, **own, **TINY)
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert (report["kind"], report["steps"], report["drafter"]) == (kind, 8, str(out))
    assert report["acceptance_length"] >= 1 and report["verdict"]["text"] in printed.err
    assert "100% step 8, stage 2: loss" in printed.err and "tokens a step" in printed.err
    rows = read_progress(out)
    assert [row.step for row in rows] == [2, 4, 6, 8]
    assert [row.acceptance_length is not None for row in rows] == [False, True] * 2
    drafted = 1 if kind == "causal_lm" else 6
    assert all(len(row.top1_by_draft) == len(row.loss_by_draft) == drafted for row in rows)
    base = load_frozen(model, CPU, 64)
    method = load_draft_method(str(out), base, model, compute_path("fp32", CPU))
    assert type(method).__name__ == {"causal_lm": "CausalLMDraft"}.get(kind, "LocalAttentionDraft")


@pytest.mark.parametrize("kind", KINDS)
def test_answers_in_another_tokenizer_are_refused_by_every_kind(model, tmp_path, capsys, kind):
    begin_with = save_tiny_drafter(tmp_path / "recurrent", vocab=VOCAB)
    foreign = [([5, 6], np.array([7, VOCAB, 8, 9], dtype=np.int32))] * 9
    AnswerRows.join(foreign).save(tmp_path / "rows.safetensors")
    own = {"begin_with": str(begin_with), "data": tmp_path / "rows.safetensors"}
    with pytest.raises(typer.Exit) as ended:
        train_drafter(tmp_path / "out", model=str(model), kind=kind, **own, **TINY)
    assert ended.value.exit_code == 2
    assert "holds token 64 of another tokenizer; the model has 64" in capsys.readouterr().err


def test_layers_kept_are_both_ends_and_the_middle():
    assert some_layers(30) == (0, 1, 14, 28, 29)
    assert [some_layers(depth) for depth in (1, 2, 4)] == [(0,), (0, 1), (0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "medusa"}, "--kind = 'medusa': use one of recurrent, causal_lm, local_attention"),
        ({"kind": "causal_lm", "plain": True}, "--plain = True: belongs to --kind recurrent"),
        ({"kind": "causal_lm", "resume": True}, "holds no training to resume"),
        ({"kind": "causal_lm", "layers": "0,2"}, "layers = [2]: name some of 0 to 1"),
        ({"kind": "causal_lm", "layers": "first"}, "--layers = 'first': write numbers"),
        ({"kind": "local_attention"}, "--begin-with = None: name the recurrent drafter"),
        ({"kind": "local_attention", "begin_with": "/none"}, "no such directory"),
        ({"kind": "causal_lm", "max_steps": 0}, "max_steps = 0: must be positive"),
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
