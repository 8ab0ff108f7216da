"""SmolLM2 at temperature 1 under llama.cpp's grammars writes nothing but what they allow (``real_model`` does many seeds)."""

import asyncio
import json
from pathlib import Path

import pytest

from bridge.sampling.grammar import Grammar
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import real_model
from tests.sampling.grammar.real_model import Written, fault_of, opened, written

CASES = json.loads((Path(__file__).parents[2] / "data" / "grammar" / "grammars.json").read_text(encoding="utf-8"))["cases"]
GRAMMARS = {case["name"]: case["grammar"] for case in CASES}
NAMES = ("json.gbnf", "json_arr.gbnf", "list.gbnf", "japanese.gbnf", "schema: required + optional props each in original order")
"""llama.cpp's own grammars, and one that it makes of a JSON schema."""
N_SEEDS, N_PREDICT = 2, 24


@pytest.fixture(scope="module")
def texts():
    """What the model wrote: texts by grammar."""

    async def write():
        host = WasmtimeHost(2)
        async with opened(real_model("smollm2"), host) as model:
            found = {}
            for name in NAMES:
                grammar = Grammar.for_tokenizer(GRAMMARS[name], model.tokenizer)
                found[name] = [await written(model, grammar, seed, N_PREDICT) for seed in range(N_SEEDS)]
        host.close()
        return found

    return asyncio.run(write())


@pytest.mark.parametrize("name", NAMES)
def test_what_a_real_model_writes_is_of_the_grammar(texts, name):
    assert [fault_of(GRAMMARS[name], name, text) for text in texts[name]] == [None] * N_SEEDS, texts[name]
    assert len({text.text for text in texts[name]}) > 1, "seeds make a difference"


@pytest.mark.parametrize(("text", "is_finished", "fault"), [
    ('{"a": 1', False, None),
    ('{"a": \ufffd', False, None),
    ('{"a": 1', True, "ended, and is not accepted"),
    ('{"a" 1', False, "left the grammar"),
    ('{"a": 01}', True, "is no JSON"),
])
def test_the_check_notices(text, is_finished, fault):
    loose = 'root ::= "{" [^x]* "}"' if fault == "is no JSON" else GRAMMARS["json.gbnf"]
    found = fault_of(loose, "json", Written(text, is_finished, 1))
    assert found == fault or found.startswith(fault)
