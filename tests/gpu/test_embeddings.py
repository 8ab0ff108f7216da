"""Encoders, embedding models and rerankers on WebGPU (a software adapter will do): llama.cpp's vectors."""

import asyncio

import pytest

from bridge.gpu.tuning import HARDWARE
from bridge.gpu.wgpu_device import request_device
from tests.embeddings import check_pooled, check_pooling_of_a_decoder, check_tokens, embedding_case, embedding_names


async def _on_a_device(check, case):
    device = await request_device()

    async def devices():
        return device

    try:
        await check(case, backend="webgpu", devices=devices)
    finally:
        device.destroy()


@pytest.mark.parametrize("name", embedding_names())
def test_pooled_vectors_equal_llama_cpps(name):
    asyncio.run(_on_a_device(check_pooled, embedding_case(name)))


@pytest.mark.parametrize("name", ["bert-cls-f16", "t5encoder-f16", "qwen3-embed-last-q8_0"])
def test_token_vectors_equal_llama_cpps(name):
    asyncio.run(_on_a_device(check_tokens, embedding_case(name)))


@pytest.mark.parametrize("name", ["bert-mean-q5_1", "modern-bert-rerank-q8_0", "gemma-embedding-dense-q8_0"])
def test_what_hardware_adapters_fuse_changes_nothing(name, monkeypatch):
    for module in ("bridge.gpu.tuning", "bridge.gpu.session"):
        monkeypatch.setattr(f"{module}.tuning_for", lambda info, **options: HARDWARE)
    asyncio.run(_on_a_device(check_pooled, embedding_case(name)))


def test_a_decoders_vectors_are_pooled_over_batches():
    asyncio.run(_on_a_device(check_pooling_of_a_decoder, "qwen3-embed-last-q8_0"))
