"""Embeddings and ranks over the host's messages, by real models on the numpy reference."""

import asyncio
import math
import re

import numpy as np
import pytest

from bridge.errors import DeviceError
from tests.embeddings import embedding_case, load, vector
from tests.host.scripted_engine import Page, ScriptedModel

PLAIN, RERANKER = "bert-mean-f32", "bert-rerank-direct-q8_0"
PROMPT = next(prompt for prompt in embedding_case(PLAIN)["prompts"] if prompt["name"] == "short")
TEXT = {"type": "text", "text": PROMPT["text"]}
LONG = "a " * 200


def answers(name, *calls, **options):
    async def scenario():
        case = embedding_case(name) if isinstance(name, str) else name
        page = await Page(await load(case, backend="reference", **options)).loaded()
        return [await page.call(method, *args) for method, *args in calls]

    return asyncio.run(scenario())


def outcome(answer):
    return answer.get("name"), answer["code"], answer["message"]


def test_a_string_and_its_parts_give_the_same_vector_of_length_1():
    halves = [{"type": "text", "text": text} for text in (PROMPT["text"][:7], "", PROMPT["text"][7:])]
    whole, parts, raw = (answer["value"] for answer in answers(
        PLAIN, ("embed", PROMPT["text"], {}), ("embed", halves, {}), ("embed", PROMPT["text"], {"normalize": False})))
    expected = vector(PROMPT["pooled_b64"])
    assert whole == parts and math.isclose(sum(x * x for x in whole), 1.0, rel_tol=1e-5)
    np.testing.assert_allclose(raw, expected, atol=2e-4)
    np.testing.assert_allclose(whole, expected / np.linalg.norm(expected), atol=2e-4)


def test_a_batch_is_a_vector_for_each_input_in_order():
    texts = [prompt["text"] for prompt in embedding_case(PLAIN)["prompts"]]
    [batch, none, *single] = (answer["value"] for answer in answers(
        PLAIN, ("embedBatch", [*texts, [TEXT]], {}), ("embedBatch", [], {}), *(("embed", text, {}) for text in texts)))
    np.testing.assert_allclose(batch[:-1], single, atol=1e-6)
    np.testing.assert_allclose(batch[-1], single[texts.index(PROMPT["text"])], atol=1e-6)
    assert none == []


@pytest.mark.parametrize("given, code, words", [
    ([], "INVALID_EMBEDDING_INPUT", "are empty"),
    ([5], "INVALID_EMBEDDING_INPUT", "part 0 must have a text"),
    ([{"type": "text"}], "INVALID_EMBEDDING_INPUT", "part 0 must have a text"),
    ([TEXT, {"type": "text", "text": "<__media__>"}], "INVALID_EMBEDDING_INPUT", "part 1 .* reserved marker"),
    ([{"type": "image", "bytes": b"x"}], "EMBEDDING_PROJECTOR_MISSING", "part 0 has the type image"),
    ([{"type": "video"}], "EMBEDDING_MODALITY_UNSUPPORTED", "part 0 is none of"),
    ([{"type": "text", "text": LONG}], "EMBEDDING_INPUT_TOO_LARGE", "202 tokens, which exceeds the 128"),
])
def test_parts_fail_with_the_documented_codes_alone_and_in_a_batch(given, code, words):
    for answer in answers(PLAIN, ("embed", given, {}), ("embedBatch", ["fine", given], {})):
        name, found, message = outcome(answer)
        assert (name, found) == ("EmbeddingError", code)
        assert re.search(words, message)


def test_strings_fail_in_their_own_words():
    long, kind = map(outcome, answers(PLAIN, ("embed", LONG, {}), ("embed", 5, {})))
    said = "Embedding generation failed: "
    assert long == (None, "CONTEXT_OVERFLOW",
                    said + "the text has 202 tokens, which exceeds the 128 that this model takes at once")
    assert kind == (None, "INVALID_INPUT", said + "the input must be a string or a list of parts, got int")


def test_what_gives_no_single_vector_takes_strings_and_no_parts():
    for name, options in ((RERANKER, {}), (PLAIN, {"pooling": "none"})):
        probe, text, parts = answers(name, ("getEmbeddingCapabilities",), ("embed", "x", {}), ("embed", [TEXT], {}), **options)
        assert probe["value"] == {"apiVersion": 1, "text": False, "image": False, "audio": False}
        assert len(text["value"]) == (3 if name == RERANKER else 64)
        assert outcome(parts)[:2] == ("EmbeddingError", "MODEL_NOT_EMBEDDING")


def test_capabilities_follow_the_loaded_model():
    async def scenario():
        page = Page(await load(embedding_case(PLAIN), backend="reference"), ScriptedModel())
        nothing = {"apiVersion": 1, "text": False, "image": False, "audio": False}
        assert (await page.call("getEmbeddingCapabilities"))["value"] == nothing
        await page.loaded()
        assert (await page.call("getEmbeddingCapabilities"))["value"] == {**nothing, "text": True}
        await page.loaded()
        assert (await page.call("getEmbeddingCapabilities"))["value"] == nothing
        assert outcome(await page.call("embed", "x", {}))[1] == "UNSUPPORTED"

    asyncio.run(scenario())


def test_a_model_that_writes_drops_its_prompt_for_a_vector():
    case = {"model": "qwen3-f16.gguf", "n_ctx": 64}
    score = ("scoreNextToken", "some text", {"topK": 1})
    before, vector_, after = answers(case, score, ("embed", "some text", {}), score)
    assert len(vector_["value"]) == 64 and before["value"] == after["value"]


def test_an_encoder_does_not_write():
    [answer] = answers(PLAIN, ("createCompletion", "x", {}))
    assert (answer["code"], answer["message"]) == (
        "UNSUPPORTED", "Failed to start generation: the model (architecture bert) gives vectors for texts; it cannot "
                       "predict tokens")


def test_failures_of_the_device_and_cancellation():
    async def scenario():
        model = await load(embedding_case(PLAIN), backend="reference")

        async def lost(*args):
            raise DeviceError("lost")

        page = await Page(model).loaded()
        running = page.send("embedBatch", ["a"] * 3, {})
        page.host.handle({"type": "call", "id": 99, "method": "cancel", "args": []})
        assert (await page.answer(running))["code"] == "CANCELLED"
        model._session.embed = lost
        parts, text = [outcome(await page.call("embed", given, {})) for given in ([TEXT], "x")]
        assert parts == ("EmbeddingError", "EMBEDDING_FAILED", "Embedding failed: lost")
        assert text == (None, "DEVICE_FAILED", "Embedding generation failed: lost")

    asyncio.run(scenario())


def test_rank_answers_for_each_document_in_order():
    prompts = embedding_case(RERANKER)["prompts"]
    prompts = [prompt for prompt in prompts if prompt["query"] == prompts[0]["query"]]
    documents = [prompt["document"] for prompt in prompts]
    ranked, wrong = answers(RERANKER, ("rank", prompts[0]["query"], documents), ("rank", "q", ["a", 5]))
    for found, prompt in zip(ranked["value"], prompts, strict=True):
        np.testing.assert_allclose(found["labels"], vector(prompt["pooled_b64"]), atol=1e-3)
        assert found["score"] == found["labels"][0] and found["promptTokens"] == len(prompt["tokens"])
    assert wrong["code"] == "INVALID_INPUT"
    [no] = answers(PLAIN, ("rank", "q", ["a"]))
    assert outcome(no)[1:] == (
        "UNSUPPORTED", "Ranking failed: the model is no reranker: its file does not ask for the pooling 'rank'")
