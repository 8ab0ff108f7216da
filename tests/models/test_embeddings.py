"""Encoders, embedding models and rerankers on the numpy reference: llama.cpp's vectors, tokens and hyper-parameters."""

import asyncio
import math

import numpy as np
import pytest

from bridge.errors import ModelError, UnsupportedError
from bridge.gguf import open_gguf
from bridge.graph import ALL, EMBEDDINGS, LOGITS
from bridge.models import build_graph
from bridge.models.bert import alibi_slopes
from bridge.models.t5encoder import relative_buckets
from bridge.runtime.ranking import pair_tokens
from tests.embeddings import check_pooled, check_pooling_of_a_decoder, check_tokens, embedding_case, embedding_names, load
from tests.golden import MODELS

PLAIN = [name for name in embedding_names() if embedding_case(name)["pooling"] != "rank"]
RERANKERS = [name for name in embedding_names() if embedding_case(name)["pooling"] == "rank"]


@pytest.mark.parametrize("name", embedding_names())
def test_pooled_vectors_equal_llama_cpps(name):
    asyncio.run(check_pooled(embedding_case(name), backend="reference"))


@pytest.mark.parametrize("name", PLAIN)
def test_token_vectors_equal_llama_cpps(name):
    asyncio.run(check_tokens(embedding_case(name), backend="reference"))


@pytest.mark.parametrize("name", embedding_names())
def test_texts_and_pairs_become_llama_cpps_tokens(name):
    case = embedding_case(name)
    model = asyncio.run(load(case, backend="reference"))
    for prompt in case["prompts"]:
        if "query" in prompt:
            assert pair_tokens(model, prompt["query"], prompt["document"]) == prompt["tokens"]
        elif "text" in prompt:
            assert model.tokenizer.encode(prompt["text"]) == prompt["tokens"]


def opened(name):
    with open_gguf(MODELS / f"{name}.gguf") as file:
        return dict(file.metadata), dict(file.tensors)


def test_a_decoder_has_logits_and_embeddings_and_an_encoder_only_these():
    assert set(build_graph(*opened("qwen3-embed-last-q8_0"), 64).results) == {LOGITS, EMBEDDINGS}
    assert set(build_graph(*opened("bert-mean-f32"), 64).results) == {EMBEDDINGS}


@pytest.mark.parametrize("name", ["qwen2-f16", "gemma2-f32", "phi2-q8_0", "granite-f16"])
def test_a_decoder_that_is_not_causal_reads_whole_texts(name):
    metadata, tensors = opened(name)
    metadata[f"{metadata['general.architecture']}.attention.causal"] = False
    graph = build_graph(metadata, tensors, 64)
    assert graph.reads_whole_texts and not graph.kv_layers
    assert [node.attrs["after"] for node in graph.nodes if node.op == "text_attention"] == [ALL] * metadata[
        f"{metadata['general.architecture']}.block_count"]


def test_what_both_directions_do_not_go_with_is_said():
    metadata, tensors = opened("gpt-oss-mxfp4")
    with pytest.raises(UnsupportedError, match="attention with sinks in both directions is not supported"):
        build_graph(metadata | {"gpt-oss.attention.causal": False}, tensors, 64)


def test_a_mean_over_a_decoder_leaves_the_head_out():
    graph = build_graph(*opened("qwen3-f16"), 64, "mean")
    assert set(graph.results) == {EMBEDDINGS} and "output.weight" not in graph.weights()
    assert graph.nodes[-1].op == "text_mean"


@pytest.mark.parametrize("key, value, words", [
    ("bert.pooling_type", 9, "bert.pooling_type is 9; it must be one of 0 .none., 1 .mean.*4 .rank."),
    ("bert.pooling_type", "mean", "bert.pooling_type is the string 'mean'; it must be an integer"),
    ("bert.attention.causal", 1, "bert.attention.causal is 1; it must be true or false"),
    ("bert.attention.layer_norm_epsilon", None, "bert.attention.layer_norm_epsilon is missing"),
    ("bert.context_length", 100, r"position_embd.weight has the shape \[128, 64\]; this model needs \[100, 64\]"),
    ("bert.classifier.output_labels", "one", "bert.classifier.output_labels is the string 'one'; it must be a list"),
    ("bert.classifier.pooling_type", 7, "bert.classifier.pooling_type is 7"),
])
def test_what_a_key_must_be_is_said(key, value, words):
    metadata, tensors = opened("bert-rerank-q8_0")
    metadata[key] = value
    if value is None:
        del metadata[key]
    with pytest.raises(ModelError, match=words):
        build_graph(metadata, tensors, 64)


def test_a_reranker_without_a_head_is_refused():
    metadata, tensors = opened("bert-rerank-direct-q8_0")
    del tensors["cls.output.weight"]
    with pytest.raises(ModelError, match="neither a tensor cls.weight nor cls.output.weight"):
        build_graph(metadata, tensors, 64)


@pytest.mark.parametrize("name", RERANKERS)
def test_each_bent_tensor_of_a_head_is_named(name):
    metadata, tensors = opened(name)
    for tensor in [tensor for tensor in tensors if tensor.startswith("cls.")]:
        shape = tensors[tensor].shape
        bent = tensors | {tensor: type(tensors[tensor])(tensor, tensors[tensor].type, (*shape[:-1], shape[-1] + 2), 0, 0)}
        with pytest.raises(ModelError, match=tensor):
            build_graph(metadata, bent, 64)


def test_the_labels_of_a_file_decide_the_width_of_its_head():
    metadata, tensors = opened("bert-rerank-direct-q8_0")
    assert build_graph(metadata, tensors, 64).results[EMBEDDINGS].width == 3
    with pytest.raises(ModelError, match=r"cls.output.weight has the shape \[3, 64\]; this model needs \[1, 64\]"):
        build_graph({k: v for k, v in metadata.items() if "labels" not in k}, tensors, 64)


def test_jinas_reranker_has_a_head_of_one_row():
    metadata, tensors = opened("jina-bert-v2-f16")
    row = tensors["token_embd_norm.weight"]
    tensors |= {name: type(row)(name, row.type, shape, 0, 0) for name, shape in (("cls.weight", (64,)), ("cls.bias", (1,)))}
    head = build_graph(metadata | {"jina-bert-v2.pooling_type": 4}, tensors, 64).results[EMBEDDINGS]
    assert (head.op, head.attrs["act"], head.width, len(head.inputs[0].weights)) == ("activate", "tanh", 1, 2)


def test_fused_and_separate_projections_are_the_same():
    """nomic-bert's file has one matrix for queries, keys and values; taken apart it must build as well."""
    metadata, tensors = opened("nomic-bert-f16")
    fused = tensors.pop("blk.0.attn_qkv.weight")
    parts = {f"blk.0.attn_{part}.weight": type(fused)(f"blk.0.attn_{part}.weight", fused.type, (64, 64), 0, 0) for part in "qkv"}
    separate = build_graph(metadata, tensors | parts, 64)
    assert {"blk.0.attn_q.weight", "blk.1.attn_qkv.weight"} <= set(separate.weights())
    with pytest.raises(ModelError, match="no tensor blk.0.attn_qkv.weight, which should have the shape .192, 64."):
        build_graph(metadata, tensors, 64)
    with pytest.raises(ModelError, match="no tensor blk.0.attn_k.weight"):
        build_graph(metadata, tensors | {k: v for k, v in parts.items() if "attn_k" not in k}, 64)


def test_jinas_gate_may_be_half_of_the_other_matrix_or_missing():
    metadata, tensors = opened("jina-bert-v2-f16")
    gates = [f"blk.{i}.ffn_gate.weight" for i in range(2)]
    with pytest.raises(ModelError, match=f"no tensor {gates[1]}"):
        build_graph(metadata, {name: info for name, info in tensors.items() if name != gates[1]}, 64)
    tensors = {name: info for name, info in tensors.items() if name not in gates}
    plain = build_graph(metadata, tensors, 64)
    up = tensors["blk.0.ffn_up.weight"]
    tensors["blk.0.ffn_up.weight"] = type(up)(up.name, up.type, (192, 64), up.offset, 0)
    fused = build_graph(metadata, tensors, 64)
    assert [node.op for node in plain.nodes].count("glu") == 0 and [node.op for node in fused.nodes].count("glu") == 1


def test_jinas_model_for_code_has_more_norms():
    metadata, tensors = opened("jina-bert-v2-f16")
    row = tensors["token_embd_norm.weight"]
    for name in ("attn_q_norm", "attn_k_norm", "attn_norm_2"):
        tensors |= {f"blk.{i}.{name}.weight": type(row)(f"blk.{i}.{name}.weight", row.type, (64,), 0, 0) for i in range(2)}
    ops = [node.op for node in build_graph(metadata, tensors, 64).nodes]
    assert ops.count("layer_norm") == 1 + 2 * 2 + 3 * 2


def test_the_norms_of_bert_have_biases():
    metadata, tensors = opened("bert-cls-f16")
    for name in [name for name in tensors if name.endswith("norm.bias")]:
        with pytest.raises(ModelError, match=f"no tensor {name}"):
            build_graph(metadata, {k: v for k, v in tensors.items() if k != name}, 64)


def test_alibi_slopes_of_heads_that_are_no_power_of_two():
    assert alibi_slopes(8, 8.0) == tuple(2.0 ** -(i + 1) for i in range(8))
    assert alibi_slopes(6, 8.0) == (0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125)


def test_relative_buckets_are_those_of_the_formula():
    for n_buckets in (8, 32, 64):
        buckets, side, exact = relative_buckets(n_buckets), n_buckets // 2, n_buckets // 4
        for distance in range(-128, 129):
            size = abs(distance)
            found = size if size < exact else min(side - 1, math.floor(
                exact + float(np.log(np.float32(size / exact))) * (side - exact) / math.log(128 / exact)))
            assert buckets[distance + 128] == found + (side if distance > 0 else 0)
    with pytest.raises(ModelError, match="relative_buckets_count is 2; it must be from 4 to 256"):
        relative_buckets(2)


def test_a_decoders_vectors_are_pooled_over_batches():
    asyncio.run(check_pooling_of_a_decoder("qwen3-embed-last-q8_0", backend="reference"))
