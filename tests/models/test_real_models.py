"""Two real models on the numpy reference: llama.cpp's token ids, logits and greedy continuations."""

import asyncio

import numpy as np
import pytest

from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from tests.golden import REAL_MODELS, real_case, real_model

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)


async def _run(name):
    case = real_case(name)
    model = await load_model(str(real_model(name)),
                             LoadOptions(n_ctx=case["n_ctx"], backend="reference", kv_type="f32"))
    results = []
    for i, prompt in enumerate(case["prompts"][:2]):  # the CPU kernels do all of them (tests/simd/test_real_models.py)
        n_predict = 4 if i == 0 else 1  # the interpreter takes up to a second a token
        ids = model.tokenizer.encode(prompt["text"], add_special=True, parse_special=False) if prompt["text"] else None
        logits = (await model.evaluate(prompt["tokens"]))[0]
        options = GenerateOptions(n_predict=n_predict, sampling=GREEDY, ignore_eos=True)
        tokens = [piece.token async for piece in model.generate(prompt["tokens"], options)]
        results.append((prompt, ids, logits, tokens[:n_predict]))
    await model.close()
    return case, results


@pytest.mark.parametrize("name", REAL_MODELS)
def test_real_model_equals_llama_cpp(name):
    case, results = asyncio.run(_run(name))
    for prompt, ids, logits, tokens in results:
        expected = prompt["expected"]
        if ids is not None:
            assert ids == prompt["tokens"]
        top = expected["top50"]
        difference = max(abs(float(logits[token]) - value) for token, value in top)
        assert difference <= case["tolerance"]["f32_reference_atol"]
        assert int(np.argmax(logits)) == top[0][0]
        assert tokens and tokens == expected["greedy"][:len(tokens)]
