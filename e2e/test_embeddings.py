"""Embeddings and ranks in a real page, in a worker and on the page's own thread, by the CPU kernels and by WebGPU."""

from __future__ import annotations

import numpy as np
import pytest
from e2e.bridge_page import MODELS, shared_bridge
from e2e.fault_server import Fault
from tests.embeddings import embedding_case, vector

PLAIN, RERANKER = "nomic-bert-f16", "bert-rerank-direct-q8_0"


@pytest.fixture(scope="module")
def shared(browser, isolated_site):
    with shared_bridge(browser, isolated_site, "worker") as bridge:
        yield bridge


@pytest.fixture
def bridge(shared, site):
    return shared


def load(bridge, site, name, **options):
    file = embedding_case(name)["model"]
    bridge.load(site.fault(file, Fault(MODELS / file)), **{"nGpuLayers": 0, **options}).result


@pytest.mark.parametrize("layers", [0, 1])
def test_texts_alone_and_in_a_batch(bridge, site, layers):
    check_texts(bridge, site, layers)


def test_texts_on_the_pages_own_thread(browser, isolated_site, site):
    with shared_bridge(browser, isolated_site, "direct") as bridge:
        check_texts(bridge, site, 0)


def check_texts(bridge, site, layers):
    load(bridge, site, PLAIN, nGpuLayers=layers)
    assert bridge.get("isGpuActive()") is bool(layers)
    probe = bridge.call("getEmbeddingCapabilities").result
    assert probe == {"apiVersion": 1, "text": True, "image": False, "audio": False}
    prompts = embedding_case(PLAIN)["prompts"]
    texts = [prompt["text"] for prompt in prompts]
    batch = bridge.call("embedBatch", [*texts, [{"type": "text", "text": texts[0]}]]).result
    raw = bridge.call("embed", texts[1], {"normalize": False}).result
    for got, prompt in zip(batch, prompts):
        expected = vector(prompt["pooled_b64"])
        np.testing.assert_allclose(got, expected / np.linalg.norm(expected), atol=2e-4)
    np.testing.assert_allclose(batch[-1], batch[0], atol=1e-6)
    np.testing.assert_allclose(raw, vector(prompts[1]["pooled_b64"]), atol=1e-3)


def test_failures_keep_their_type_and_code(bridge, site):
    load(bridge, site, PLAIN)
    long = bridge.call("embed", [{"type": "text", "text": "a " * 300}])
    assert (long.error["name"], long.error["code"]) == ("EmbeddingError", "EMBEDDING_INPUT_TOO_LARGE")
    assert "302 tokens, which exceeds the 128 that this model takes at once" in long.message
    image = bridge.call("embed", [{"type": "image", "url": "x.png"}])
    assert (image.error["name"], image.error["code"]) == ("EmbeddingError", "EMBEDDING_PROJECTOR_MISSING")
    assert bridge.call("embed", "a " * 300).message.startswith("Embedding generation failed: the text has 302 tokens")
    assert bridge.complete("Hello").message.endswith("gives vectors for texts; it cannot predict tokens")
    assert len(bridge.call("embed", "fine").result) == 64


def test_documents_are_ranked(bridge, site):
    load(bridge, site, RERANKER)
    prompts = [prompt for prompt in embedding_case(RERANKER)["prompts"]]
    same = [prompt for prompt in prompts if prompt["query"] == prompts[0]["query"]]
    ranked = bridge.call("rank", same[0]["query"], [prompt["document"] for prompt in same]).result
    most = embedding_case(RERANKER)["tolerance"]["pooled"]["llama_cpp_atol"]
    for found, prompt in zip(ranked, same, strict=True):
        np.testing.assert_allclose(found["labels"], vector(prompt["pooled_b64"]), atol=most)
        assert (found["score"], found["promptTokens"]) == (found["labels"][0], len(prompt["tokens"]))
    assert bridge.call("embed", [{"type": "text", "text": "x"}]).error["code"] == "MODEL_NOT_EMBEDDING"
