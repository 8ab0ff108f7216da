"""``embed`` and ``rank`` as a user runs them, against llama.cpp's vectors."""

import io
import json
import math
import re

import numpy as np
import pytest

from bridge.cli import main
from tests.embeddings import embedding_case, vector
from tests.golden import MODELS

PLAIN, RERANKER = "nomic-bert-f16", "bert-rerank-direct-q8_0"


def run(capsys, *words):
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def path(name):
    return MODELS / embedding_case(name)["model"]


@pytest.mark.parametrize("backend", ["reference", "simd", "webgpu"])
def test_texts_become_vectors_of_length_1(capsys, backend):
    prompts = [prompt for prompt in embedding_case(PLAIN)["prompts"] if "text" in prompt]
    texts = [prompt["text"] for prompt in prompts]
    status, out, _ = run(capsys, "embed", path(PLAIN), *texts, "--backend", backend, "--kv", "f32", "--json")
    found = json.loads(out)
    assert status == 0 and found["tokens"] == [len(prompt["tokens"]) for prompt in prompts]
    for got, prompt in zip(found["embeddings"], prompts, strict=True):
        expected = vector(prompt["pooled_b64"])
        np.testing.assert_allclose(got, expected / np.linalg.norm(expected), atol=1e-5)


def test_tokens_and_a_length_of_their_own(capsys):
    prompt = embedding_case("qwen3-embed-last-q8_0")["prompts"][-1]
    tokens = ",".join(map(str, prompt["tokens"]))
    status, out, _ = run(capsys, "embed", path("qwen3-embed-last-q8_0"), "--tokens", tokens, "--no-normalize", "--json",
                         "--backend", "simd", "--kv", "f32")
    np.testing.assert_allclose(json.loads(out)["embeddings"][0], vector(prompt["pooled_b64"]), atol=2e-4)


def test_without_pooling_every_token_has_its_vector(capsys):
    prompt = next(prompt for prompt in embedding_case(PLAIN)["prompts"] if "tokens_b64" in prompt)
    status, out, _ = run(capsys, "embed", path(PLAIN), "--tokens", ",".join(map(str, prompt["tokens"])), "--pooling", "none",
                         "--no-normalize", "--backend", "reference", "--json")
    got = np.array(json.loads(out)["embeddings"])
    assert got.shape == (1, len(prompt["tokens"]), 64)
    np.testing.assert_allclose(got[0], vector(prompt["tokens_b64"], len(prompt["tokens"]), -1), atol=2e-4)


def test_a_model_that_writes_has_vectors_too(capsys):
    status, out, _ = run(capsys, "embed", MODELS / "gemma2-f32.gguf", "some text", "--backend", "reference")
    values = [float(word) for word in out.split()]
    assert status == 0 and len(values) == 64 and math.isclose(sum(v * v for v in values), 1.0, rel_tol=1e-5)


@pytest.mark.parametrize("name, pooling", [(PLAIN, "mean"), (RERANKER, "rank"), ("qwen3-embed-last-q8_0", "last")])
def test_inspect_says_how_a_file_pools(capsys, name, pooling):
    _, out, _ = run(capsys, "inspect", path(name))
    assert f", pooling {pooling}," in out


def test_rank_prints_the_best_first_and_all_labels_as_json(capsys):
    prompts = embedding_case(RERANKER)["prompts"]
    query, same = prompts[0]["query"], [p for p in prompts if p["query"] == prompts[0]["query"]]
    documents = [prompt["document"] for prompt in same]
    words = ["rank", path(RERANKER), query, *documents, "--backend", "reference"]
    _, out, _ = run(capsys, *words, "--json")
    found = json.loads(out)
    for labels, score, prompt in zip(found["labels"], found["scores"], same, strict=True):
        np.testing.assert_allclose(labels, vector(prompt["pooled_b64"]), atol=1e-3)
        assert score == labels[0]
    _, out, _ = run(capsys, *words)
    order = sorted(range(len(documents)), key=lambda i: -found["scores"][i])
    assert [line.split("\t")[1] for line in out.splitlines()] == [documents[i] for i in order]


@pytest.mark.parametrize("words, message", [
    (["embed", path(PLAIN), "--tokens", ",".join(["5"] * 300)], "the text has 300 tokens, which exceeds the 256 that"),
    (["generate", path(PLAIN), "-p", "a"], "the model .architecture nomic-bert. gives vectors for texts"),
    (["logits", path(PLAIN), "--tokens", "1", "--out", "x.npy"], "it cannot predict tokens"),
    (["rank", path(PLAIN), "query", "document"], "the model is no reranker"),
])
def test_what_a_model_cannot_do_is_said_in_a_line(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *words, "--backend", "reference")
    assert status == 1 and not out and err.count("\n") == 1
    assert re.search(message, err)


def test_standard_input_is_a_text(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"some text")))
    _, piped, _ = run(capsys, "embed", path(PLAIN), "-", "--backend", "reference")
    _, given, _ = run(capsys, "embed", path(PLAIN), "some text", "--backend", "reference")
    assert piped == given
