"""``logits`` and ``generate`` as a user runs them, against llama.cpp's numbers for one model of each architecture."""

import json

import numpy as np
import pytest

from bridge.cli import main
from tests.golden import golden, model_path, same_continuation, tolerance, worst_difference

NAMES = ("llama-untied-f16", "qwen2-f16", "qwen3-f16", "gemma2-f32", "gemma3-q4_0")


@pytest.mark.parametrize("backend", ["reference", "webgpu", "simd"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_continuation(name, backend, tmp_path, capsys):
    case = golden(name)
    prompt = case["prompts"][-1]
    tokens, out = ",".join(map(str, prompt["tokens"])), tmp_path / "logits.npy"
    load = ["--backend", backend, "--kv", "f32", "--ctx", str(case["n_ctx"])]
    assert main(["logits", str(model_path(case)), "--tokens", tokens, "--out", str(out), *load]) == 0
    assert worst_difference(np.load(out), prompt["expected"]) <= tolerance(case)
    capsys.readouterr()
    greedy = ["--temp", "0", "--penalty", "1", "--ignore-eos", "-n", str(len(prompt["expected"]["greedy"]))]
    assert main(["generate", str(model_path(case)), "--tokens", tokens, *greedy, *load, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_tokens"] == len(prompt["tokens"])
    assert same_continuation(found["tokens"], prompt["expected"])
