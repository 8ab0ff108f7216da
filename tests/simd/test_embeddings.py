"""Encoders, embedding models and rerankers by the CPU kernels: llama.cpp's vectors."""

import asyncio

import pytest

from tests.embeddings import check_pooled, check_pooling_of_a_decoder, check_tokens, embedding_case, embedding_names


def machine(host, **options):
    async def cpus():
        return host

    return {"backend": "simd", "cpus": cpus, **options}


@pytest.mark.parametrize("name", embedding_names())
def test_exact_arithmetic_equals_llama_cpps_in_float32(host, name):
    asyncio.run(check_pooled(embedding_case(name), **machine(host, precision="exact")))


@pytest.mark.parametrize("name", embedding_names())
def test_rounding_activations_costs_no_more_than_it_costs_llama_cpp(host, name):
    asyncio.run(check_pooled(embedding_case(name), "llama_cpp_atol", **machine(host, precision="fast")))


@pytest.mark.parametrize("name", [name for name in embedding_names() if embedding_case(name)["pooling"] != "rank"])
def test_token_vectors_equal_llama_cpps(host, name):
    asyncio.run(check_tokens(embedding_case(name), **machine(host, precision="exact")))


def test_a_decoders_vectors_are_pooled_over_batches(host):
    asyncio.run(check_pooling_of_a_decoder("qwen3-embed-last-q8_0", **machine(host, precision="exact")))
