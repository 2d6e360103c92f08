"""The bytes and parameters of a pass, against the model that the engine really holds."""

from __future__ import annotations

import pytest

from profiles.records import TrialConfig
from tests.tuner.engines.tiny import HIDDEN, VOCAB, save_tiny_llama
from tuner.engines.redrafter.engine import RedrafterEngine
from tuner.model_shape import model_shape

NORMS = (2 * 2 + 1) * HIDDEN  # two a layer and the last
ATTENTION = HIDDEN * (32 + 2 * 16) + 32 * HIDDEN  # 4 heads of 8, 2 of them with keys and values
LINEAR = 2 * (ATTENTION + 3 * HIDDEN * 64) + VOCAB * HIDDEN


def shape_of(folder, precision):
    config = TrialConfig(model=str(folder), device="cpu", quantization=precision, draft_len=0)
    engine = RedrafterEngine()
    engine.prepare(config, 64)
    return model_shape(config, precision, engine.memory())


@pytest.mark.parametrize("tied", [True, False])
def test_a_pass_reads_every_weight_but_the_embedding_table(tmp_path, tied):
    shape = shape_of(save_tiny_llama(tmp_path / "llama", tie_word_embeddings=tied), "fp32")
    assert shape.linear_parameters == LINEAR
    assert shape.weights_read_bytes == 4 * (LINEAR + NORMS)
    assert shape.embedding_row_bytes == 4 * HIDDEN
    assert shape.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4  # key and value, layers, heads, dim


def test_half_precision_halves_the_weights(tmp_path):
    folder = save_tiny_llama(tmp_path / "llama")
    half, full = shape_of(folder, "bf16"), shape_of(folder, "fp32")
    assert half.linear_parameters == full.linear_parameters
    assert half.weights_read_bytes == pytest.approx(full.weights_read_bytes / 2, rel=0.02)
    assert half.embedding_row_bytes == full.embedding_row_bytes / 2
