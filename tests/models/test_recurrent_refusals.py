"""Hyper-parameters of recurrent models that cannot be: one sentence each, naming the key."""

import pytest

from bridge.errors import BridgeError, ModelError
from bridge.models import build_graph
from tests.models.test_refusals import open_file


@pytest.mark.parametrize("architecture, key", [
    ("mamba", "ssm.conv_kernel"), ("mamba", "ssm.inner_size"), ("mamba", "ssm.state_size"),
    ("mamba", "ssm.time_step_rank"),
    ("mamba", "attention.layer_norm_rms_epsilon"), ("mamba2", "ssm.conv_kernel"), ("mamba2", "ssm.time_step_rank"),
    ("lfm2", "shortconv.l_cache"), ("lfm2", "attention.head_count"), ("lfm2", "feed_forward_length"),
    ("rwkv7", "wkv.head_size"), ("rwkv7", "attention.decay_lora_rank"), ("rwkv7", "attention.iclr_lora_rank"),
    ("lfm2moe", "expert_feed_forward_length"), ("lfm2moe", "expert_gating_func"), ("granitehybrid", "ssm.inner_size"),
    ("qwen35", "rope.dimension_sections"), ("qwen35", "ssm.group_count"), ("qwen35", "ssm.state_size"),
    ("qwen3next", "ssm.conv_kernel"), ("qwen3next", "ssm.time_step_rank"), ("qwen3next", "ssm.inner_size"),
    ("rwkv7", "attention.value_residual_mix_lora_rank"), ("rwkv7", "attention.gate_lora_rank"),
])
def test_a_missing_key_is_named(architecture, key):
    metadata, tensors = open_file(architecture)
    del metadata[f"{architecture}.{key}"]
    with pytest.raises(ModelError, match=f"metadata key {architecture}.{key} is missing"):
        build_graph(metadata, tensors, 64)


@pytest.mark.parametrize("architecture, name", [
    ("mamba", "ssm_conv1d"), ("mamba", "ssm_dt"), ("mamba2", "ssm_conv1d"), ("mamba2", "ssm_dt"), ("qwen35", "ssm_dt"),
    ("rwkv7", "attn_norm"), ("rwkv7", "attn_norm_2"), ("rwkv7", "time_mix_ln"), ("lfm2moe", "exp_probs_b"),
])
def test_biases_that_a_model_cannot_do_without_are_named(architecture, name):
    metadata, tensors = open_file(architecture)
    bias = next(tensor for tensor in tensors if tensor.endswith(f".{name}.bias"))
    with pytest.raises(ModelError, match=f"no tensor {bias}, which should have the shape"):
        build_graph(metadata, {key: info for key, info in tensors.items() if key != bias}, 64)


@pytest.mark.parametrize("architecture, key, value, named", [
    ("mamba", "ssm.conv_kernel", 1, "ssm.conv_kernel"), ("mamba", "ssm.dt_b_c_rms", 3, "ssm.dt_b_c_rms is 3"),
    ("mamba", "ssm.inner_size", 96, "ssm_in.weight"), ("mamba", "ssm.state_size", 8, "ssm_x.weight"),
    ("mamba2", "ssm.time_step_rank", 7, "ssm.time_step_rank 7"), ("mamba2", "ssm.group_count", 3, "group_count 3"),
    ("mamba2", "ssm.conv_kernel", 5, "ssm_conv1d.weight"), ("mamba2", "ssm.state_size", 0, "ssm.state_size is 0"),
    ("lfm2", "shortconv.l_cache", 1, "shortconv.l_cache is 1"),
    ("lfm2", "attention.head_count_kv", [0, 2], "head_count_kv"),
    ("lfm2", "attention.head_count_kv", [0, 0, 0], "shortconv.in_proj"),
    ("lfm2", "attention.head_count", 0, "head_count is 0"),
    ("lfm2moe", "expert_used_count", 7, "expert_used_count is 7"), ("lfm2moe", "expert_count", 0, "ffn_gate"),
    ("lfm2moe", "leading_dense_block_count", 2, "blk.1.ffn_gate"),
    ("granitehybrid", "ssm.group_count", 3, "group_count 3"),
    ("granitehybrid", "attention.head_count_kv", [2, 2, 0], "blk.0.attn_q"),
    ("granitehybrid", "logit_scale", 0.0, "is 0"),
    ("qwen35", "ssm.group_count", 3, "ssm.group_count 3"), ("qwen35", "ssm.inner_size", 48, "ssm.inner_size 48"),
    ("qwen35", "full_attention_interval", 3, "blk.1.attn_qkv"),
    ("qwen35", "attention.recurrent_layers", [1], "list of 2"),
    ("qwen3next", "expert_feed_forward_length", 16, "ffn_gate_exps"),
    ("qwen3next", "nextn_predict_layers", 2, "from 0 to 1"),
    ("qwen3next", "expert_shared_feed_forward_length", 16, "shexp"),
    ("qwen3next", "attention.head_count_kv", 0, "attn_k"),
    ("rwkv7", "wkv.head_size", 48, "wkv.head_size 48"), ("rwkv7", "token_shift_count", 1, "token_shift_count is 1"),
    ("rwkv7", "attention.gate_lora_rank", 4, "time_mix_g1.weight"),
    ("rwkv7", "feed_forward_length", 0, "channel_mix_key"),
])
def test_an_impossible_value_is_refused_in_one_sentence(architecture, key, value, named):
    metadata, tensors = open_file(architecture)
    with pytest.raises(BridgeError, match=named) as error:
        build_graph(metadata | {f"{architecture}.{key}": value}, tensors, 64)
    assert "\n" not in str(error.value) and len(str(error.value)) < 250
