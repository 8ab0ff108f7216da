"""The measuring tool runs and counts right; its figures are no test."""

import json

from bridge.bench import program_timer
from tools import kernel_bench


def test_it_measures_every_kernel(capsys, monkeypatch):
    monkeypatch.setattr(program_timer, "TARGET_SECONDS", 1e-4)
    arguments = "--formats Q8_0,IQ2_S --n-in 64 --n-out 40 --tokens 1,3 --positions 16 --json".split()
    assert kernel_bench.main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * (2 + 5)
    matmul = rows[0]
    assert matmul["kernel"] == "matmul Q8_0 64x40" and matmul["tokens"] == 1
    expected = 2 * 64 * 40 / (matmul["microseconds"] * 1e-6) / 1e9
    assert abs(matmul["gflops"] - expected) <= 0.01 * expected + 0.001
