"""Files that miss something: one sentence that names it."""

import re
from types import SimpleNamespace

import pytest

from bridge.errors import BridgeError, ModelError, UnsupportedError
from bridge.gguf import open_gguf
from bridge.models import ARCHITECTURES, build_graph
from tests.golden import MODELS

FILES = {
    "llama": "llama-untied-f16.gguf",
    "qwen2": "qwen2-f16.gguf",
    "qwen3": "qwen3-f16.gguf",
    "gemma2": "gemma2-f32.gguf",
    "gemma3": "gemma3-f16.gguf",
    "gemma": "gemma-f16.gguf",
    "gemma3n": "gemma3n-q4_0.gguf",
    "gemma4": "gemma4-q8_0.gguf",
    "deepseek2": "deepseek2-q8_0.gguf",
    "gpt-oss": "gpt-oss-mxfp4.gguf",
    "mistral3": "mistral3-f16.gguf",
    "qwen2moe": "qwen2moe-q8_0.gguf",
    "qwen3moe": "qwen3moe-q8_0.gguf",
    "cohere2": "cohere2-q8_0.gguf",
    "command-r": "command-r-q8_0.gguf",
    "ernie4_5": "ernie4_5-q8_0.gguf",
    "exaone4": "exaone4-f16.gguf",
    "falcon": "falcon-q8_0.gguf",
    "glm4": "glm4-q4_0.gguf",
    "gpt2": "gpt2-f16.gguf",
    "granite": "granite-f16.gguf",
    "hunyuan-dense": "hunyuan-dense-f16.gguf",
    "internlm2": "internlm2-q8_0.gguf",
    "minicpm": "minicpm-f16.gguf",
    "nemotron": "nemotron-q8_0.gguf",
    "olmo2": "olmo2-f16.gguf",
    "phi2": "phi2-q8_0.gguf",
    "phi3": "phi3-q8_0.gguf",
    "smollm3": "smollm3-f16.gguf",
    "stablelm": "stablelm-f16.gguf",
    "starcoder2": "starcoder2-f16.gguf",
    "granitehybrid": "granitehybrid-f16.gguf",
    "lfm2": "lfm2-f32.gguf",
    "lfm2moe": "lfm2moe-q8_0.gguf",
    "mamba": "mamba-f16.gguf",
    "mamba2": "mamba2-f32.gguf",
    "qwen35": "qwen35-f32.gguf",
    "qwen3next": "qwen3next-q8_0.gguf",
    "rwkv7": "rwkv7-f16.gguf",
    "bert": "bert-mean-f32.gguf",
    "nomic-bert": "nomic-bert-f16.gguf",
    "jina-bert-v2": "jina-bert-v2-f16.gguf",
    "modern-bert": "modern-bert-q8_0.gguf",
    "gemma-embedding": "gemma-embedding-f16.gguf",
    "t5encoder": "t5encoder-f16.gguf",
}

VARIANTS = {
    "deepseek2 without a query rank": "deepseek2-noqlora-q8_0.gguf",
    "deepseek2 with keys and values in one tensor": "deepseek2-unsplit-q8_0.gguf",
    "gemma4 with experts": "gemma4-moe-q8_0.gguf",
    "stablelm with parallel halves": "stablelm-parallel-q8_0.gguf",
}

OPTIONAL = r"^output\.weight$|\.bias$|^rope_freqs\.weight$"
OPTIONAL_IN = {"stablelm": r"ffn_norm", "stablelm with parallel halves": r"attn_[qk]_norm",
               "gemma4": r"attn_v|layer_output_scale",
               "gemma4 with experts": r"attn_v|layer_output_scale|ffn_down_exps.scale",
               **dict.fromkeys(("bert", "nomic-bert", "jina-bert-v2"), r"token_types")}
"""Tensors whose absence means something else."""
UNUSED = {"rwkv7": {f"blk.0.time_mix_v{i}.weight" for i in range(3)}}
"""Tensors that files have and no model reads."""


def open_file(architecture):
    unused = UNUSED.get(architecture, ())
    with open_gguf(MODELS / (FILES | VARIANTS)[architecture]) as file:
        return dict(file.metadata), {name: info for name, info in file.tensors.items() if name not in unused}


def test_every_architecture_has_a_file_here():
    assert set(FILES) == set(ARCHITECTURES)


@pytest.mark.parametrize("architecture", FILES | VARIANTS)
def test_each_tensor_is_needed_and_named_when_missing(architecture):
    metadata, tensors = open_file(architecture)
    for name in tensors:
        if re.search(OPTIONAL, name) or re.search(OPTIONAL_IN.get(architecture, "$^"), name):
            continue
        rest = {k: v for k, v in tensors.items() if k != name}
        with pytest.raises(ModelError, match=f"no tensor {name}, which should have the shape"):
            build_graph(metadata, rest, 64)


@pytest.mark.parametrize("architecture", FILES | VARIANTS)
def test_each_bent_tensor_is_named_with_both_shapes(architecture):
    metadata, tensors = open_file(architecture)
    for name, info in tensors.items():
        bent = SimpleNamespace(type=info.type, shape=(*info.shape[:-1], info.shape[-1] + 2))
        with pytest.raises(ModelError) as error:
            build_graph(metadata, tensors | {name: bent}, 64)
        message = str(error.value)
        assert name in message
        assert str(list(bent.shape)) in message and str(list(info.shape)) in message


@pytest.mark.parametrize("architecture", ["phi2", "gpt2", "falcon", "starcoder2", "nemotron", "stablelm", "gpt-oss"])
def test_biases_that_a_model_always_has_are_needed(architecture):
    metadata, tensors = open_file(architecture)
    optional = r"attn_[qkv]\.|ffn_norm" if architecture == "stablelm" else r"attn_[qkv]\."
    needed = [name for name in tensors if name.endswith(".bias") and not re.search(optional, name)]
    assert len(needed) >= 3
    for name in needed:
        with pytest.raises(ModelError, match=f"no tensor {name}, which should have the shape"):
            build_graph(metadata, {k: v for k, v in tensors.items() if k != name}, 64)


@pytest.mark.parametrize("architecture", ["phi2", "olmo2", "internlm2", "gpt-oss", "stablelm", "nemotron", "qwen2moe"])
def test_an_output_that_is_never_the_embedding_is_needed(architecture):
    metadata, tensors = open_file(architecture)
    with pytest.raises(ModelError, match=r"no tensor output\.weight, which should have the shape"):
        build_graph(metadata, {k: v for k, v in tensors.items() if k != "output.weight"}, 64)


@pytest.mark.parametrize("architecture, key, value, named", [
    ("granite", "logit_scale", 0.0, "logit_scale is 0"),
    ("granite", "rope.scaling.finetuned", 1, "must be true or false"),
    ("cohere2", "attention.sliding_window", None, "attention.sliding_window is missing"),
    ("cohere2", "logit_scale", None, "logit_scale is missing"),
    ("falcon", "attention.layer_norm_epsilon", None, "attention.layer_norm_epsilon is missing"),
    ("gpt2", "context_length", 64, "position_embd.weight"),
    ("starcoder2", "attention.head_count_kv", None, r"blk.0.attn_k.weight has the shape \[32, 64\]; .* \[64, 64\]"),
    ("glm4", "rope.dimension_sections", [2, 1, 0, 1], "1 pairs of columns to a fourth"),
    ("qwen3moe", "expert_count", None, "expert_count is missing"),
    ("qwen2moe", "expert_used_count", 7, "expert_used_count is 7"),
    ("gpt-oss", "expert_feed_forward_length", None, "expert_feed_forward_length is missing"),
    ("gpt-oss", "attention.sliding_window_pattern", [True], "has 1 entries for 2 layers"),
    ("deepseek2", "expert_gating_func", 4, "expert_gating_func is 4"),
    ("deepseek2", "expert_group_used_count", 5, "5 of 4 groups"),
    ("deepseek2", "attention.kv_lora_rank", None, "kv_lora_rank is missing"),
    ("deepseek2", "attention.key_length_mla", 8, "must be wider than the 8"),
    ("deepseek2", "leading_dense_block_count", 2, "blk.1.ffn_gate.weight"),
    ("gemma4", "attention.shared_kv_layers", 3, "two must have their own"),
    ("gemma4", "attention.key_length_swa", 24, "blk.0.attn_q.weight"),
    ("gemma4", "attention.sliding_window_pattern", [True, True, True, False], "shares a cache|blk.1"),
    ("gemma3n", "attention.sliding_window", 0, "sliding_window is 0"),
    ("mistral3", "rope.scaling.factor", -1.0, "rope.scaling.factor is -1; it must be at least 0"),
    ("mistral3", "rope.scaling.yarn_beta_fast", 0.0, "yarn_beta_fast is 0; it must be above 0"),
    ("mistral3", "rope.scaling.factor", 0.001, "with YaRN it must be at least 0.01"),
    ("gemma4", "rope.dimension_count_swa", 32, "dimension_count_swa is 32; it must be even and at most 16"),
    ("gemma4", "rope.freq_base_swa", 0.5, "freq_base_swa is 0.5; it must be above 1"),
    ("phi2", "attention.layer_norm_epsilon", -1.0, "layer_norm_epsilon is -1; it must be at least 0 and at most 1"),
    ("minicpm", "residual_scale", "much", "residual_scale is the string"),
])
def test_a_bent_hyper_parameter_is_named(architecture, key, value, named):
    metadata, tensors = open_file(architecture)
    full = f"{architecture}.{key}"
    bent = {k: v for k, v in metadata.items() if k != full} if value is None else metadata | {full: value}
    with pytest.raises(BridgeError, match=named) as error:
        build_graph(bent, tensors, 64)
    assert "\n" not in str(error.value) and len(str(error.value)) < 250


@pytest.mark.parametrize("key", ["context_length", "embedding_length", "block_count", "feed_forward_length",
                                 "attention.head_count", "attention.layer_norm_rms_epsilon"])
def test_a_missing_key_is_named(key):
    metadata, tensors = open_file("llama")
    del metadata[f"llama.{key}"]
    with pytest.raises(ModelError, match=f"llama.{key}"):
        build_graph(metadata, tensors, 64)


@pytest.mark.parametrize("key, value", [
    ("block_count", 0), ("block_count", 1 << 40), ("block_count", "three"), ("embedding_length", -64),
    ("attention.head_count", 0), ("attention.head_count", [4]), ("attention.head_count_kv", 3),
    ("attention.head_count_kv", 0), ("rope.dimension_count", 15), ("rope.dimension_count", 1000),
    ("attention.layer_norm_rms_epsilon", float("nan")), ("rope.freq_base", 0.0), ("rope.scaling.factor", -2.0),
    ("expert_count", 4),
])
def test_an_impossible_key_is_refused_in_one_sentence(key, value):
    metadata, tensors = open_file("llama")
    with pytest.raises(ModelError) as error:
        build_graph(metadata | {f"llama.{key}": value}, tensors, 64)
    assert "\n" not in str(error.value) and len(str(error.value)) < 250


def test_unknown_architecture_and_scaling_are_named():
    metadata, tensors = open_file("llama")
    with pytest.raises(UnsupportedError, match="'mamba9'.*supported are.*llama"):
        build_graph(metadata | {"general.architecture": "mamba9"}, tensors, 64)
    with pytest.raises(UnsupportedError, match="'spiral'"):
        build_graph(metadata | {"llama.rope.scaling.type": "spiral"}, tensors, 64)
    with pytest.raises(ModelError, match="general.architecture"):
        build_graph({}, tensors, 64)
