"""The defaults that docs/api.md tells of completions and loads, against those of the engine."""

import re
from dataclasses import fields
from pathlib import Path

from bridge.host.models import INITIAL_N_CTX
from bridge.host.options import DEFAULT_N_PREDICT, SAMPLING
from bridge.runtime.load import DEFAULT_N_UBATCH
from bridge.sampling import SamplingOptions

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def default(option):
    [row] = re.findall(rf"^\| [^|]*`{option}`[^|]*\| `([^`]*)`", DOCUMENT, re.MULTILINE)
    return row


def test_defaults_of_completions():
    engine = {field.name: field.default for field in fields(SamplingOptions)}
    told = {key: float(default(key)) for key in ("temp", "topK", "topP", "penalty", "minP", "presencePenalty")}
    names = SAMPLING | {"minP": "min_p", "presencePenalty": "presence_penalty"}
    assert told == {key: engine[names[key]] for key in told}
    assert default("nPredict") == str(DEFAULT_N_PREDICT)


def test_defaults_of_loads():
    assert default("nCtx") == str(INITIAL_N_CTX)
    rows = [row for row in DOCUMENT.splitlines() if row.startswith("| `nBatch`, `nUbatch` | `")]
    assert len(rows) == 1 and f"`{DEFAULT_N_UBATCH}`" in rows[0]
