"""A real embedding model, all-MiniLM-L6-v2, against its original: the published weights in float32, by the textbook.

The reference tokenises, evaluates and pools on its own, with the GELU of the error function that the model was trained with
(llama.cpp and this engine have the tanh form).
"""

import asyncio
import math
import unicodedata
from functools import cache

import numpy as np
import pytest

from bridge.runtime import LoadOptions, load_model
from bridge.runtime.embeddings import embed_texts
from tools.minilm import BUILD, ORIGINAL, Original, model_path

SENTENCES = [
    "The cat sits on the mat.", "A man is playing a guitar on stage.", "Stock markets fell sharply on Tuesday.",
    "How do I reset my password?", "The Eiffel Tower is in Paris, France.", "She didn't like the movie at all!",
    "Photosynthesis converts light into chemical energy.", "naïve café crème brûlée", "The quick brown fox jumps over 13 lazy dogs.",
    "E=mc² was published in 1905.", "Bitte öffnen Sie das Fenster.", "GPU kernels (WGSL) run in the browser; so does wasm.",
    "unbelievably antidisestablishmentarianism", "Is it raining? Yes, it is.", "New York is bigger than Boston.",
    "A recipe for bread: flour, water, salt and yeast.", "The patient was given 5 mg of the drug twice a day.",
    "Machine learning models learn from data.", "Call me at 555-0199 or write to a@b.org.", "Once upon a time, in a land far away, "
    "there lived a king who had three daughters, each more beautiful than the other, and a kingdom that no one had ever left.",
]
COSINE = 0.9999


@cache
def original():
    path = BUILD / ORIGINAL.path
    if not path.exists():
        pytest.skip(f"{path.name} is not there; 'make minilm' fetches it")
    return Original(path)


def words_of(text):
    """BERT's own splitting, uncased: no accents, punctuation stands alone."""
    text = unicodedata.normalize("NFD", text.lower())
    spaced = ""
    for character in text:
        kind = unicodedata.category(character)
        is_punctuation = kind.startswith("P") or (character.isascii() and not character.isalnum() and not character.isspace())
        spaced += "" if kind == "Mn" else f" {character} " if is_punctuation else character
    return spaced.split()


def pieces_of(text, vocabulary):
    found = [vocabulary["[CLS]"]]
    for word in words_of(text):
        start, pieces = 0, []
        while start < len(word):
            mark = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in vocabulary), None)
            if end is None:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[mark + word[start:end]])
            start = end
        found += pieces
    return [*found, vocabulary["[SEP]"]]


def erf(x):
    """To 2e-7: Abramowitz & Stegun, Handbook of Mathematical Functions, 7.1.26."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - series * np.exp(-x * x))


def embedded(model, tokens):
    """The sentence's vector, of length 1."""
    t, config = model.tensors, model.config
    n_head = config["num_attention_heads"]

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(config["layer_norm_eps"]))
        return scaled * t[f"{name}.weight"] + t[f"{name}.bias"]

    x = t["embeddings.word_embeddings.weight"][tokens] + t["embeddings.position_embeddings.weight"][:len(tokens)]
    x = norm(x + t["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        q, k, v = (linear(x, f"{layer}.attention.self.{name}").reshape(len(x), n_head, -1) for name in ("query", "key", "value"))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(np.float32(q.shape[-1]))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v).reshape(len(x), -1)
        x = norm(linear(mixed, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output.LayerNorm")
        y = linear(x, f"{layer}.intermediate.dense")
        y = y * (1 + erf(y / np.float32(math.sqrt(2)))) / 2
        x = norm(linear(y, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    pooled = x.mean(axis=0)
    return pooled / np.linalg.norm(pooled)


@cache
def references():
    model = original()
    return np.array([embedded(model, pieces_of(text, model.vocabulary)) for text in SENTENCES])


def cosines(type_name, sentences=SENTENCES, **options):
    async def found():
        model = await load_model(str(model_path(type_name)), LoadOptions(n_ctx=256, **options.pop("load")), **options)
        try:
            tokens = [model.tokenizer.encode(text) for text in sentences]
            assert tokens == [pieces_of(text, original().vocabulary) for text in sentences]
            return np.array(await embed_texts(model, tokens))
        finally:
            await model.close()

    expected = references()[:len(sentences)]
    assert expected.dtype == np.float32
    got = asyncio.run(found())
    return (got * expected).sum(-1) / np.linalg.norm(got, axis=-1)


def test_twenty_sentences_by_the_cpu_kernels():
    original()
    from bridge.simd.wasmtime_host import WasmtimeHost

    host = WasmtimeHost(2)

    async def cpus():
        return host

    try:
        exact = cosines("F16", load={"backend": "simd", "kv_type": "f32"}, cpus=cpus)
        fast = cosines("Q8_0", load={"backend": "simd"}, cpus=cpus)
    finally:
        host.close()
    assert len(exact) == 20 and exact.min() >= COSINE
    assert fast.min() >= 0.999  # eight bits for weights and activations


def test_sentences_on_webgpu():
    original()
    from bridge.gpu.wgpu_device import request_device

    async def devices():
        return await request_device()

    assert cosines("F16", SENTENCES[:4], load={"backend": "webgpu"}, devices=devices).min() >= COSINE
