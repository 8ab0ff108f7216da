"""The benchmark of fusion measures what it says."""

import json

import pytest

from tests.golden import MODELS
from tools import fusion_bench


def test_every_list_of_rules_is_measured(capsys):
    model = str(MODELS / "qwen3-f16.gguf")
    assert fusion_bench.main([model, "--prompt-tokens", "4", "-n", "2", "--repeat", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = [found[name]["dispatches_per_token"] for name in fusion_bench.RULES]
    assert counts == [2 * 16 + 5, 2 * 8 + 5, 2 * 6 + 4]
    assert all(found[name][f"{kind}_cpu_ms"] > 0 for name in fusion_bench.RULES for kind in ("prompt", "token"))


def test_unknown_rules_are_refused(capsys):
    with pytest.raises(SystemExit):
        fusion_bench.main(["model.gguf", "--rules", "software,all"])
    assert "--rules names 'all'; there are residuals, software, hardware" in capsys.readouterr().err
