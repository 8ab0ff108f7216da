"""Forms of recurrent models of which there is no file here, made from those there are."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from bridge.errors import UnsupportedError
from bridge.gguf import open_gguf
from bridge.graph.reference import ReferenceSession
from bridge.models import build_graph
from bridge.quants import quant_type
from tests.golden import MODELS

TOKENS = [3, 140, 59, 265, 35, 8, 97, 93]


def opened(name):
    with open_gguf(MODELS / f"{name}.gguf") as file:
        return dict(file.metadata), {name: file.array(name) for name in file.tensors}


def logits(metadata, arrays):
    tensors = {name: SimpleNamespace(shape=array.shape, type=quant_type("F32")) for name, array in arrays.items()}
    session = ReferenceSession(build_graph(metadata, tensors, 64), arrays, n_ctx=64, kv_type="f32")
    return asyncio.run(session.evaluate(TOKENS, 0, range(len(TOKENS)))).reshape(len(TOKENS), -1)


def test_older_qwen3next_files_have_one_tensor_ordered_by_key_head():
    metadata, arrays = opened("qwen3next-q8_0")
    expected = logits(metadata, arrays)
    qkv, z = arrays.pop("blk.0.attn_qkv.weight"), arrays.pop("blk.0.attn_gate.weight")
    q, k, v = np.split(qkv, [32, 64])  # two key heads and four value heads of 16
    parts = [rows.reshape(2, -1, rows.shape[-1]) for rows in (q, k, v, z)]
    arrays["blk.0.ssm_in.weight"] = np.concatenate(parts, axis=1).reshape(-1, qkv.shape[-1])
    np.testing.assert_allclose(logits(metadata, arrays), expected, atol=1e-4)


def test_queries_keys_and_values_may_be_one_tensor_here_too():
    metadata, arrays = opened("qwen35-f32")
    expected = logits(metadata, arrays)
    parts = [arrays.pop(f"blk.1.attn_{letter}.weight") for letter in "qkv"]
    arrays["blk.1.attn_qkv.weight"] = np.concatenate(parts)
    np.testing.assert_allclose(logits(metadata, arrays), expected, atol=1e-4)


def test_attention_layers_can_be_listed_and_predictors_of_further_tokens_are_left_out():
    metadata, arrays = opened("qwen35-f32")
    expected = logits(metadata, arrays)
    listed = metadata | {"qwen35.attention.recurrent_layers": [True, False, False], "qwen35.block_count": 3,
                         "qwen35.nextn_predict_layers": 1, "qwen35.full_attention_interval": 7}
    np.testing.assert_array_equal(logits(listed, arrays), expected)


def test_pairs_of_columns_that_a_fourth_position_would_rotate_are_refused():
    metadata, arrays = opened("qwen35-f32")
    with pytest.raises(UnsupportedError, match=r"sections \[3, 1, 2, 2\] leave 2 of 8 pairs"):
        logits(metadata | {"qwen35.rope.dimension_sections": [3, 1, 2, 2]}, arrays)


def test_normalised_steps_inputs_and_read_outs_do_not_depend_on_their_scale():
    metadata, arrays = opened("mamba-f16")
    loud = arrays | {name: array * 64 for name, array in arrays.items() if name.endswith("ssm_x.weight")}
    normalised = metadata | {"mamba.ssm.dt_b_c_rms": True}
    np.testing.assert_allclose(logits(normalised, loud), logits(normalised, arrays), atol=2e-3)
    assert np.abs(logits(metadata, loud) - logits(metadata, arrays)).max() > 1


def test_experts_of_lfm2_may_be_chosen_by_softmax_but_not_by_what_is_unknown():
    metadata, arrays = opened("lfm2moe-q8_0")
    by_sigmoid = logits(metadata, arrays)
    assert np.abs(logits(metadata | {"lfm2moe.expert_gating_func": 1}, arrays) - by_sigmoid).max() > 0.1
    with pytest.raises(UnsupportedError, match="expert_gating_func is 5"):
        logits(metadata | {"lfm2moe.expert_gating_func": 5}, arrays)


def test_granite_hybrid_without_scales_is_scaled_by_one():
    metadata, arrays = opened("granitehybrid-f16")
    keys = ("logit_scale", "residual_scale", "embedding_scale", "attention.scale")
    bare = {key: value for key, value in metadata.items() if key not in {f"granitehybrid.{name}" for name in keys}}
    ones = {"logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": 16**-0.5}
    scaled = metadata | {f"granitehybrid.{name}": value for name, value in ones.items()}
    np.testing.assert_allclose(logits(bare, arrays), logits(scaled, arrays), atol=1e-5)
