"""llama.cpp's numbers for the tiny models in tests/data, and the checks that compare an engine with them.

Each file of tests/data/golden names a model of tests/data/models, the tolerance (largest absolute difference, from the
noise measured in llama.cpp itself) and, for some prompts, the last logits, the ten largest logits of every position and
the greedy continuation with the number of its leading steps whose margin is large enough to be compared.
The values are those of weights decoded to float32 and a float32 kv cache.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge.gguf import open_gguf

DATA = Path(__file__).parent / "data"
MODELS = DATA / "models"
BUILT = Path(__file__).parents[1] / "build" / "models"
REAL_MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}


def golden_names() -> list[str]:
    return sorted(path.stem for path in (DATA / "golden").glob("*.json"))


@cache
def golden(name: str) -> dict[str, Any]:
    return json.loads((DATA / "golden" / f"{name}.json").read_text())


def model_path(case: dict[str, Any]) -> Path:
    return MODELS / case["model"]


@cache
def has_experts(name: str) -> bool:
    """Whether rounding may pick another expert at a few positions, in llama.cpp as here."""
    with open_gguf(model_path(golden(name))) as file:
        return any(key.endswith(".expert_count") and value for key, value in file.metadata.items())


def telling_prompts(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The shortest prompt and the longest: what a slow backend is held to; the numpy reference takes all."""
    by_length = sorted(case["prompts"], key=lambda prompt: len(prompt["tokens"]))
    return [by_length[0], by_length[-1]]


def tolerance(case: dict[str, Any], reference: str = "f32_reference") -> float:
    """How far logits may be from the stored ones; "llama_cpp" allows what llama.cpp itself rounds, activations to bytes."""
    return case["tolerance"]["logits"][f"{reference}_atol"]


def last_difference(logits: np.ndarray, expected: dict[str, Any]) -> float:
    """Largest difference of the last token's logits from the stored ones."""
    return float(np.abs(logits - np.frombuffer(base64.b64decode(expected["last_logits_b64"]), "<f4")).max())


def worst_difference(logits: np.ndarray, expected: dict[str, Any]) -> float:
    """Largest difference of [n_tokens, n_vocab] logits from the stored ones: all of the last row, ten of each other."""
    worst = last_difference(logits[-1], expected)
    for row, top in zip(logits, expected["top10"], strict=True):
        worst = max(worst, *(abs(float(row[token]) - value) for token, value in top))
    return worst


def same_continuation(tokens: Sequence[int], expected: dict[str, Any]) -> bool:
    safe = expected["greedy_safe_steps"]
    return list(tokens[:safe]) == expected["greedy"][:safe]


def real_model(name: str) -> Path:
    """The file of a real model that set-up has fetched."""
    path = BUILT / REAL_MODELS[name]
    if not path.exists():
        pytest.skip(f"{path.name} is not there; 'make models gemma' fetches it")
    return path


def real_case(name: str) -> dict[str, Any]:
    """Prompts of a real model with llama.cpp's largest logits and its greedy continuation."""
    return json.loads((DATA / "real" / f"{name}.json").read_text())
