"""llama.cpp's vectors for the tiny encoders and rerankers in tests/data, and the checks that compare a model with them.

Each file of tests/data/embeddings names a model of tests/data/models, how it pools, and for some texts their tokens and the
pooled vector; for short texts also a vector for each token, of a context without pooling. Values and tolerances are as in
tests/golden.py.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import numpy as np

from bridge.runtime import LoadOptions, load_model
from bridge.runtime.embeddings import embed_texts, embed_tokens
from tests.golden import DATA, MODELS


def embedding_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "embeddings").glob("*.json"))


@cache
def embedding_case(name: str) -> dict[str, Any]:
    return json.loads((DATA / "embeddings" / f"{name}.json").read_text())


def vector(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape or -1)


async def load(case: dict[str, Any], *, devices=None, cpus=None, **options: Any):
    options = LoadOptions(**{"n_ctx": case["n_ctx"], "kv_type": "f32"} | options)
    return await load_model(str(MODELS / case["model"]), options, devices=devices, cpus=cpus)


async def check_pooled(case: dict[str, Any], against: str = "f32_reference_atol", **machine: Any) -> None:
    """All texts at once: an encoder takes several in a batch."""
    model = await load(case, **machine)
    try:
        found = await embed_texts(model, [prompt["tokens"] for prompt in case["prompts"]])
    finally:
        await model.close()
    for got, prompt in zip(found, case["prompts"], strict=True):
        difference = np.abs(np.array(got) - vector(prompt["pooled_b64"])).max()
        assert difference <= case["tolerance"]["pooled"][against], prompt["name"]


async def check_tokens(case: dict[str, Any], **machine: Any) -> None:
    model = await load(case, pooling="none", **machine)
    try:
        for prompt in case["prompts"]:
            if "tokens_b64" not in prompt:
                continue
            got = np.array(await embed_tokens(model, prompt["tokens"]))
            expected = vector(prompt["tokens_b64"], len(prompt["tokens"]), -1)
            assert np.abs(got - expected).max() <= case["tolerance"]["tokens"]["f32_reference_atol"], prompt["name"]
    finally:
        await model.close()


async def check_pooling_of_a_decoder(name: str, **machine: Any) -> None:
    """Mean, first and last are those of its tokens' vectors, over batches of eight."""
    case = embedding_case(name)
    tokens, found = case["prompts"][-1]["tokens"], {}
    for pooling in ("none", "mean", "cls", "last"):
        model = await load(case, pooling=pooling, n_ubatch=8, **machine)
        try:
            rows = await (embed_tokens(model, tokens) if pooling == "none" else embed_texts(model, [tokens]))
        finally:
            await model.close()
        found[pooling] = np.array(rows)
    every = found["none"]
    for pooling, expected in (("mean", every.mean(axis=0)), ("cls", every[0]), ("last", every[-1])):
        np.testing.assert_allclose(found[pooling][0], expected, atol=2e-5, err_msg=pooling)
