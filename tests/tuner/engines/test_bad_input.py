"""Every wrong checkpoint and config is refused by name before anything is served."""

from __future__ import annotations

import shutil

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from profiles.records import TrialConfig
from tests.tuner.engines.tiny import edit_config, save_tiny_drafter
from tuner.engines import engine_class
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.errors import BadInput, OutOfMemory, UnsupportedConfig
from tuner.models.builtin import prepare_builtin


@pytest.fixture
def model(tiny_llama, tmp_path):
    return shutil.copytree(tiny_llama, tmp_path / "model")


@pytest.fixture
def drafter(tiny_drafter, tmp_path):
    return shutil.copytree(tiny_drafter, tmp_path / "drafter")


def prepare(model, drafter, max_seq_len=64, **knobs):
    fixed = {"model": str(model), "drafter": str(drafter), "device": "cpu", "quantization": "fp32"}
    engine = RedrafterEngine()
    engine.prepare(TrialConfig(**{**fixed, **knobs}), max_seq_len)
    return engine


def edit_weights(folder, change):
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def test_unknown_model(drafter):
    with pytest.raises(BadInput, match=r"model = 'no-such-model': no such directory"):
        prepare("no-such-model", drafter)


def test_a_file_is_not_a_model(drafter, tmp_path):
    (tmp_path / "model.gguf").write_text("")
    with pytest.raises(BadInput, match="is a file; give the directory"):
        prepare(tmp_path / "model.gguf", drafter)


def test_directory_without_config(drafter, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"has no config.json"):
        prepare(tmp_path / "empty", drafter)


def test_unsupported_architecture_is_named(model, drafter):
    edit_config(model, architectures=["GPT2LMHeadModel"])
    with pytest.raises(BadInput, match="architecture = 'GPT2LMHeadModel': use one of Llama"):
        prepare(model, drafter)


def test_unsupported_rope_is_named(model, drafter):
    edit_config(model, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0})
    with pytest.raises(BadInput, match="rope_type = 'yarn': use one of default, linear, llama3"):
        prepare(model, drafter)


def test_config_that_is_not_json(model, drafter):
    (model / "config.json").write_text("{")
    with pytest.raises(BadInput, match="is not valid JSON"):
        prepare(model, drafter)


def test_config_that_lacks_a_field(model, drafter):
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(BadInput, match="lacks 'num_attention_heads'"):
        prepare(model, drafter)


def test_torn_checkpoint(model, drafter):
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match="is not a readable safetensors file"):
        prepare(model, drafter)


def test_no_checkpoint(model, drafter):
    (model / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=r"holds no .safetensors file"):
        prepare(model, drafter)


def test_missing_tensor(model, drafter):
    edit_weights(model, lambda state: state.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(BadInput, match=r"lacks tensor 'model.layers.1.mlp.up_proj.weight'"):
        prepare(model, drafter)


def test_tensor_of_another_shape(model, drafter):
    edit_weights(model, lambda state: state.update({"model.norm.weight": torch.ones(8)}))
    with pytest.raises(BadInput, match=r"'norm.weight' has shape \[8\], .* asks for \[32\]"):
        prepare(model, drafter)


@pytest.mark.parametrize("field", ["hidden_size", "vocab_size"])
def test_drafter_of_another_base(model, tmp_path, field):
    drafter = save_tiny_drafter(tmp_path / "other", **{field: 48})
    with pytest.raises(BadInput, match=rf"its {field} is 48, the base model's is"):
        prepare(model, drafter)


def test_drafter_that_reads_layers_the_base_has_not(model, tmp_path):
    drafter = save_tiny_drafter(tmp_path / "deep", context_layers=(1, 7))
    with pytest.raises(BadInput, match=r"its context_layers name layer 7, the base model has 2"):
        prepare(model, drafter)


def test_drafter_with_an_extra_tensor(model, drafter):
    edit_weights(drafter, lambda state: state.update(mystery=torch.ones(2)))
    with pytest.raises(BadInput, match=r"unknown \['mystery'\]"):
        prepare(model, drafter)


def test_drafter_that_proposes_tokens_past_the_vocabulary(model, drafter):
    edit_weights(drafter, lambda state: state["draft_vocab"].add_(5))
    with pytest.raises(BadInput, match="names tokens past the vocabulary"):
        prepare(model, drafter)


def test_a_model_drafts_only_if_its_tokenizer_is_known(model):
    with pytest.raises(BadInput, match=r"cannot be checked without tokenizer\.json"):
        prepare(model, model)


def test_no_drafter_for_a_foreign_model(model):
    config = TrialConfig(model=str(model), device="cpu", draft_len=2)
    with pytest.raises(BadInput, match="drafter = None: none is shipped for"):
        RedrafterEngine().prepare(config, 64)


def test_draft_len_past_the_trained_one(model, drafter):
    with pytest.raises(BadInput, match="draft_len = 7: the drafter was trained for at most 6"):
        prepare(model, drafter, draft_len=7)


def test_sequences_longer_than_the_model_reads(model, drafter):
    with pytest.raises(BadInput, match="max_seq_len = 257: the model reads 256 positions"):
        prepare(model, drafter, max_seq_len=257)


def test_batch_over_memory_names_both_sizes_and_leaves_the_engine_usable(
    model, drafter, monkeypatch
):
    monkeypatch.setattr("tuner.engines.redrafter.engine._room", lambda device: 1 << 20)
    with pytest.raises(OutOfMemory, match=r"batch_size = 512 needs .* MiB \(.*\), 1 MiB "):
        prepare(model, drafter, batch_size=512)
    monkeypatch.undo()
    assert prepare(model, drafter, batch_size=2).memory().kv_bytes > 0


@pytest.mark.parametrize(
    ("field", "value"), [("beam_width", 0), ("draft_len", -1), ("batch_size", 0)]
)
def test_impossible_knobs(field, value):
    with pytest.raises(ValidationError, match=field):
        TrialConfig(**{field: value})


def test_a_device_that_is_not_there(model, drafter):
    with pytest.raises(BadInput, match="device = 'tpu': use auto, cpu, cuda"):
        prepare(model, drafter, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedConfig, match="torch finds no CUDA device here"):
            prepare(model, drafter, device="cuda")


def test_unknown_engine():
    with pytest.raises(BadInput, match="engine = 'vllm': use one of redrafter, fake"):
        engine_class("vllm")


def test_no_disk_space_for_the_builtin_model(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuner.models.builtin._convert", full)
    with pytest.raises(Exception, match="No space left on device; free 300 MB"):
        prepare_builtin(tmp_path / "cache" / "model")
    assert list((tmp_path / "cache").iterdir()) == []
