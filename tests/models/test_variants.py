"""Forms of models that no tiny file has, held to forms that one has: the same numbers written in another way."""

import asyncio
import re
from types import SimpleNamespace

import numpy as np
import pytest

from bridge.errors import ModelError
from bridge.gguf import open_gguf
from bridge.graph.reference import ReferenceSession
from bridge.models import build_graph
from bridge.quants import dequantize, quant_type
from tests.golden import MODELS

TOKENS = [3, 200, 17, 17, 99, 250, 4, 81, 12, 300, 42, 7]


class File:
    """The metadata and the decoded tensors of a tiny model, to be changed."""

    def __init__(self, name):
        with open_gguf(MODELS / name) as file:
            self.metadata = dict(file.metadata)
            self.architecture = file.architecture
            self.tensors = {}
            for name, info in file.tensors.items():
                data = file.source.read(info.offset, info.nbytes)
                self.tensors[name] = dequantize(data, info.type.name).reshape(info.shape)

    def set(self, **keys):
        for key, value in keys.items():
            name = f"{self.architecture}.{key.replace('__', '.')}"
            if value is None:
                del self.metadata[name]
            else:
                self.metadata[name] = value

    def repeat_layers(self, n_layer):
        """Layers over and over again until there are so many."""
        period = self.metadata[f"{self.architecture}.block_count"]
        for name, values in list(self.tensors.items()):
            if layer := re.match(r"blk\.(\d+)\.(.*)", name):
                for i in range(int(layer[1]), n_layer, period):
                    self.tensors[f"blk.{i}.{layer[2]}"] = values
        self.set(block_count=n_layer)

    def layers(self):
        return range(self.metadata[f"{self.architecture}.block_count"])

    def graph(self):
        f32 = quant_type("F32")
        infos = {name: SimpleNamespace(shape=values.shape, type=f32) for name, values in self.tensors.items()}
        return build_graph(self.metadata, infos, 64)

    def session(self):
        return ReferenceSession(self.graph(), self.tensors, n_ctx=64, kv_type="f32")

    def logits(self):
        """[T, n_vocab], the first tokens as one batch and the others one by one."""
        session = self.session()
        parts = [(TOKENS[:8], 0), *(([token], 8 + i) for i, token in enumerate(TOKENS[8:]))]
        rows = [asyncio.run(session.evaluate(tokens, start, range(len(tokens)))) for tokens, start in parts]
        return np.concatenate([row.reshape(-1, session.graph.n_vocab) for row in rows])


def assert_same(file, expected, tolerance=1e-4):
    assert np.abs(file.logits() - expected).max() <= tolerance


@pytest.mark.parametrize("name", ["internlm2-q8_0.gguf", "stablelm-f16.gguf", "gemma4-moe-q8_0.gguf", "qwen3-f16.gguf"])
def test_queries_keys_and_values_in_one_tensor(name):
    file = File(name)
    expected = file.logits()
    for i in file.layers():
        for kind in ("weight", "bias"):
            parts = [file.tensors.pop(f"blk.{i}.attn_{letter}.{kind}", None) for letter in "qkv"]
            if parts[2] is None and parts[1] is not None:
                parts[2] = parts[1]  # a layer of gemma4 that takes keys as values
            if parts[0] is not None:
                file.tensors[f"blk.{i}.attn_qkv.{kind}"] = np.concatenate(parts)
    assert_same(file, expected)


@pytest.mark.parametrize("name", ["gemma4-moe-q8_0.gguf", "deepseek2-q8_0.gguf", "qwen3moe-q8_0.gguf"])
def test_gates_and_ups_of_experts_in_one_tensor(name):
    file = File(name)
    expected = file.logits()
    for i in file.layers():
        if f"blk.{i}.ffn_up_exps.weight" in file.tensors:
            parts = [file.tensors.pop(f"blk.{i}.ffn_{part}_exps.weight") for part in ("gate", "up")]
            file.tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = np.concatenate(parts, axis=1)
    assert_same(file, expected)


def test_latent_attention_equals_that_of_every_head():
    file = File("deepseek2-noqlora-q8_0.gguf")
    expected = file.logits()
    for i in file.layers():
        # [heads, rank, nope] and [heads, value, rank]
        k, v = (file.tensors.pop(f"blk.{i}.attn_{part}_b.weight") for part in "kv")
        both = np.concatenate([k.transpose(0, 2, 1), v], axis=1)
        file.tensors[f"blk.{i}.attn_kv_b.weight"] = both.reshape(-1, k.shape[1])
    file.set(attention__key_length_mla=None, attention__value_length_mla=None, attention__value_length=v.shape[1],
             attention__head_count_kv=k.shape[0])
    assert_same(file, expected)


def test_deepseek_told_by_its_layers_has_no_query_rank():
    file = File("deepseek2-q8_0.gguf")
    file.repeat_layers(27)
    with pytest.raises(ModelError, match="no tensor blk.0.attn_q.weight"):
        file.graph()


def test_experts_that_all_are_in_the_groups_used():
    file = File("deepseek2-q8_0.gguf")
    file.set(expert_group_used_count=4)
    grouped = file.logits()
    file.set(expert_group_count=None, expert_group_used_count=None)
    assert_same(file, grouped)


def test_a_bias_for_the_choice_of_experts_changes_the_choice_alone():
    file = File("deepseek2-noqlora-q8_0.gguf")
    expected = file.logits()
    file.tensors["blk.1.exp_probs_b.bias"] = np.full(5, 0.25, np.float32)
    assert_same(file, expected)
    file.tensors["blk.1.exp_probs_b.bias"] = np.array([9, 9, 0, 0, 0], np.float32)
    biased = file.logits()
    file.tensors["blk.1.exp_probs_b.bias"] += np.array([1, 1, 0, 0, 0], np.float32)
    assert np.abs(biased - expected).max() > 0.1
    assert_same(file, biased)


def test_the_larger_falcon_normalises_twice():
    file = File("falcon-q8_0.gguf")
    expected = file.logits()
    for i in file.layers():
        for kind in ("weight", "bias"):
            file.tensors[f"blk.{i}.attn_norm_2.{kind}"] = file.tensors[f"blk.{i}.attn_norm.{kind}"]
    assert_same(file, expected)
    file.tensors["blk.0.attn_norm_2.weight"] = file.tensors["blk.0.attn_norm_2.weight"] * 2
    assert np.abs(file.logits() - expected).max() > 1e-2


def test_the_largest_command_r_normalises_queries_and_keys_of_each_head():
    file = File("command-r-q8_0.gguf")
    file.repeat_layers(64)
    with pytest.raises(ModelError, match=r"no tensor blk.0.attn_q_norm.weight, which should have the shape \[4, 16\]"):
        file.graph()
    for i in file.layers():
        file.tensors[f"blk.{i}.attn_q_norm.weight"] = np.ones((4, 16), np.float32)
        file.tensors[f"blk.{i}.attn_k_norm.weight"] = np.ones((2, 16), np.float32)
    assert np.isfinite(file.logits()).all()


@pytest.mark.parametrize("name, window", [("olmo2-f16.gguf", 64), ("gemma3-f16.gguf", 64)])
def test_a_window_as_long_as_the_text_hides_nothing(name, window):
    file = File(name)
    file.set(attention__sliding_window=window, rope__freq_base=10000.0)
    expected = file.logits()
    file.set(attention__sliding_window_pattern=2)
    assert_same(file, expected)
    file.set(attention__sliding_window=4)
    assert np.abs(file.logits() - expected).max() > 1e-2


def layers_of(graph):
    """For each attention its window and the tables that rotate its queries and keys."""
    found = []
    for node in graph.nodes:
        if node.op == "attention":
            tables = {source.attrs["table"] for source in node.inputs[:2] if source.op == "rope"}
            found.append((node.attrs["window"], *tables))
    return found


def test_the_32b_exaone_sees_all_where_it_does_not_rotate():
    file = File("exaone4-f16.gguf")
    file.repeat_layers(64)
    assert layers_of(file.graph()) == [(4096, "rope"), (4096, "rope"), (4096, "rope"), (0,)] * 16
    file.set(attention__sliding_window=32, attention__sliding_window_pattern=[True, False] * 32)
    assert layers_of(file.graph()) == [(32, "rope"), (0,)] * 32


def test_olmo_3_scales_the_rotation_in_layers_that_see_all():
    file = File("olmo2-f16.gguf")
    file.repeat_layers(4)
    file.set(attention__sliding_window=16, rope__scaling__type="yarn", rope__scaling__factor=8.0)
    graph = file.graph()
    assert layers_of(graph) == [(16, "rope_swa")] * 3 + [(0, "rope")]
    full, local = graph.rope_tables["rope"], graph.rope_tables["rope_swa"]
    assert (full.ext_factor, full.freq_scale) == (1.0, 0.125)
    assert (local.ext_factor, local.freq_scale, local.magnitude, local.freq_base) == (0.0, 1.0, 1.0, full.freq_base)


@pytest.mark.parametrize("name, expected", [
    ("cohere2-q8_0.gguf", [(16, "rope")] * 3 + [(0,)]), ("smollm3-f16.gguf", [(0, "rope")] * 3 + [(0,)]),
    ("gpt2-f16.gguf", [(0,)] * 2), ("gpt-oss-mxfp4.gguf", [(16, "rope_swa"), (0, "rope")]),
])
def test_which_layers_rotate(name, expected):
    file = File(name)
    file.repeat_layers(2 * len(expected))
    assert layers_of(file.graph()) == 2 * expected


def test_a_layer_has_as_many_heads_of_keys_as_of_queries_unless_told():
    file = File("gpt2-f16.gguf")
    file.set(attention__head_count=[4, 2], attention__head_count_kv=None)
    with pytest.raises(ModelError, match=r"blk.1.attn_qkv.weight has the shape \[192, 64\]; this model needs \[96, 64\]"):
        file.graph()


def test_sections_of_a_rotation_are_one_for_text_and_pair_halves():
    file = File("glm4-q4_0.gguf")
    expected = file.logits()
    file.set(rope__dimension_sections=[0, 0, 0, 0])
    assert_same(file, expected, 0)
    file.set(rope__dimension_sections=[2, 1, 1, 0])
    head = [0, 2, 4, 6, 1, 3, 5, 7, *range(8, 16)]  # the first 8 columns are rotated: neighbours become halves
    for name, values in file.tensors.items():
        if re.search(r"attn_[qk]\.", name):
            file.tensors[name] = values.reshape(-1, 16, *values.shape[1:])[:, head].reshape(values.shape)
    assert_same(file, expected)


def test_layers_that_predict_further_tokens_are_left_out():
    for name in ("glm4-q4_0.gguf", "exaone4-f16.gguf", "deepseek2-unsplit-q8_0.gguf"):
        file = File(name)
        expected = file.logits()
        file.set(block_count=len(file.layers()) + 1, nextn_predict_layers=1)
        assert_same(file, expected)


def test_later_layers_of_gemma_3n_share_caches_and_are_dense():
    file = File("gemma3n-q4_0.gguf")
    n_layer = 22
    file.repeat_layers(n_layer)
    for name in ("per_layer_token_embd.weight", "per_layer_model_proj.weight"):
        axis = 1 if name.startswith("per_layer_token") else 0
        file.tensors[name] = np.concatenate([file.tensors[name]] * (n_layer // 2), axis=axis)
    file.set(attention__sliding_window_pattern=[True, True, True, True, False] * 5)
    for part in ("attn_k", "attn_v", "attn_k_norm"):
        for i in (20, 21):
            del file.tensors[f"blk.{i}.{part}.weight"]
    graph = file.graph()
    attentions = [node for node in graph.nodes if node.op == "attention"]
    assert len(attentions) == n_layer and len(graph.kv_layers) == 20
    assert [(node.attrs["layer"], node.attrs["window"]) for node in attentions[-2:]] == [(18, 16), (18, 16)]
    assert sum(node.op == "dot" for node in graph.nodes) == 10 + 2  # sparse layers, and the lengths of streams
    assert np.isfinite(file.logits()).all()


def test_a_cache_lasts_as_long_as_the_layers_that_share_it_need():
    file = File("gemma4-q8_0.gguf")
    file.set(attention__sliding_window_pattern=[True, True, True, False], attention__key_length=16,
             attention__value_length=16, rope__dimension_count=16)
    for name, values in list(file.tensors.items()):
        if re.match(r"blk\.[13]\.attn_[qkv]_norm|rope_freqs", name):
            file.tensors[name] = values[:len(values) // 2]
        elif re.match(r"blk\.[13]\.attn_[qkv]\.", name):
            file.tensors[name] = values[:len(values) // 2]
        elif re.match(r"blk\.[13]\.attn_output", name):
            file.tensors[name] = values[:, :values.shape[1] // 2]
    graph = file.graph()
    assert [(node.attrs["layer"], node.attrs["window"]) for node in graph.nodes if node.op == "attention"] == [
        (0, 16), (1, 16), (0, 16), (1, 0)]
    assert [layer.window for layer in graph.kv_layers] == [16, 0]  # the last layer sees all that layer 1 has stored


def test_longrope_takes_its_long_factors_above_the_original_context():
    file = File("phi3-longrope-f16.gguf")
    file.set(rope__scaling__original_context_length=256)
    short = file.logits()
    file.tensors["rope_factors_long.weight"] = file.tensors["rope_factors_long.weight"] * 3
    assert_same(file, short, 0)
    file.set(rope__scaling__original_context_length=255)
    assert np.abs(file.logits() - short).max() > 1e-2


def test_minicpm_with_its_scales_written_down():
    file = File("minicpm-f16.gguf")
    expected = file.logits()
    file.set(embedding_scale=12.0, residual_scale=1.4 / 2**0.5, logit_scale=256 / 64)
    assert_same(file, expected)


def test_granite_without_rotation_knows_no_distances():
    file = File("granite-f16.gguf")
    file.set(rope__scaling__finetuned=False)
    logits = file.logits()
    assert np.abs(logits[2] - logits[3]).max() > 1e-3  # the same token, but another has come before
    file.set(rope__freq_base=123.0)
    assert_same(file, logits, 0)
