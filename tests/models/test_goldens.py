"""All architectures on the numpy reference: llama.cpp's logits and continuations for every tiny model."""

import asyncio

import numpy as np
import pytest

from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from tests.golden import golden, golden_names, model_path, same_continuation, tolerance, worst_difference

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)


async def _logits_and_continuation(case, prompt, n_predict):
    model = await load_model(str(model_path(case)),
                             LoadOptions(n_ctx=case["n_ctx"], backend="reference", kv_type="f32"))
    try:
        logits = await model.evaluate(prompt["tokens"], outputs="all")
        options = GenerateOptions(n_predict=n_predict, sampling=GREEDY, ignore_eos=True)
        tokens = [piece.token async for piece in model.generate(prompt["tokens"], options)]
        return logits, tokens[:n_predict]
    finally:
        await model.close()


@pytest.mark.parametrize("name", golden_names())
def test_reference_equals_llama_cpp(name):
    case = golden(name)
    for prompt in case["prompts"]:
        expected = prompt["expected"]
        logits, tokens = asyncio.run(_logits_and_continuation(case, prompt, len(expected["greedy"])))
        assert logits.dtype == np.float32
        assert worst_difference(logits, expected) <= tolerance(case), prompt["name"]
        assert same_continuation(tokens, expected), prompt["name"]
