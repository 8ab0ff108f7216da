"""The reader's benchmark measures what it says, on little data."""

from argparse import Namespace

import pytest

from bridge.quants import quant_type
from tests.golden import MODELS
from tools import bench_reader


@pytest.fixture(autouse=True)
def little(monkeypatch):
    def run_once(run, repeats, at_least=0.0):
        run()
        return 2.0

    monkeypatch.setattr(bench_reader, "best", run_once)
    monkeypatch.setattr(bench_reader, "N_VALUES", 1 << 16)
    monkeypatch.setattr(bench_reader, "MEGABYTE", 1000)


def test_decode_beside_gguf_py():
    q4_0, q8_k = bench_reader.measure_decode(Namespace(types=[quant_type("Q4_0"), quant_type("Q8_K")]))
    assert q4_0 == {"type": "Q4_0", "MB/s": (1 << 18) / 2e6, "gguf-py MB/s": (1 << 18) / 2e6, "ratio": 1.0}
    assert q8_k["gguf-py MB/s"] is None  # which does not decode it


def test_open_and_encode():
    options = Namespace(model=MODELS / "llama-untied-f16.gguf")
    header, tokenizer, cost = bench_reader.measure_open(options)
    assert header["seconds"] == 2.0 and tokenizer["seconds"] == 0.0 and "1 reads, " in cost["what"]
    rows = list(bench_reader.measure_encode(options))
    assert [row["text"] for row in rows] == list(bench_reader.TEXTS)
    assert all(1000 <= row["bytes"] < 1200 and row["ten times the text takes"] == 1.0 for row in rows)


def test_an_unknown_measure_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench_reader", "speed"])
    with pytest.raises(SystemExit):
        bench_reader.main()
    assert "there is no measure 'speed'; there are decode, open, encode" in capsys.readouterr().err
