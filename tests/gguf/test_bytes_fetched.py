"""What opening a large model and reading a row of it costs: counts that do not depend on the machine."""

import random

import numpy as np
import pytest

from bridge.gguf import BytesSource, GGUFError, open_gguf
from tests.gguf.forge import array, entry, gguf, tensor
from tests.gguf.scripted_server import ScriptedServer

N_TOKENS, N_EMBD = 262_144, 640
ROW = N_EMBD // 32 * 34  # Q8_0
REST = 64_000_000


class SparseFile:
    """A header, then zeros for the tensors, as far as a server needs a file."""

    def __init__(self, header):
        self.header = header
        self.size = len(header) + ROW * N_TOKENS + REST

    def __len__(self):
        return self.size

    def __getitem__(self, part):
        start, stop, _ = part.indices(self.size)
        return self.header[start:stop].ljust(stop - start, b"\0")


@pytest.fixture(scope="module")
def model():
    """A file as large as Gemma 3 270M's, with as many tokens; the embedding table comes first."""
    rng = random.Random(1)
    tokens = ["x" * rng.choice((2, 4, 6, 8, 12, 20)) for _ in range(N_TOKENS)]
    entries = [
        entry("tokenizer.ggml.tokens", array("string", tokens)),
        entry("tokenizer.ggml.scores", array("f32", [-1.0] * N_TOKENS)),
        entry("tokenizer.ggml.token_type", array("i32", [1] * N_TOKENS)),
    ]
    tensors = [tensor("token_embd.weight", [N_EMBD, N_TOKENS], 8, 0), tensor("rest", [REST], 24, ROW * N_TOKENS)]
    return SparseFile(gguf(entries, tensors))


def header_cost(model):
    """Reads and bytes that parsing the header takes, from a file that has its first tenth only."""
    source = BytesSource(model[: len(model) // 10])
    with pytest.raises(GGUFError, match="past the end"):
        open_gguf(source)
    return source.reads, source.bytes_read


def test_the_header_is_found_in_a_few_reads(model):
    """Nothing says how long it is: 7 MB in at most four reads, and at most 3 MiB too many."""
    reads, nbytes = header_cost(model)
    assert reads <= 4 and len(model.header) <= nbytes <= len(model.header) + (3 << 20)


def test_one_embedding_row_over_http(model):
    """Two requests more than the header needs: the byte that pins the file, and the row."""
    reads, nbytes = header_cost(model)
    with ScriptedServer(model, ["good"]) as server, open_gguf(server.url) as opened:
        assert opened.rows("token_embd.weight", [12_345]).shape == (1, N_EMBD)
        assert opened.source.requests == len(server.ranges) == reads + 2
        assert opened.bytes_read == nbytes + ROW
    assert nbytes + ROW - len(model.header) < len(model) / 100


def test_rows_that_lie_together_are_one_request(model):
    with ScriptedServer(model, ["good"]) as server, open_gguf(server.url) as opened:
        before = opened.source.requests
        assert not opened.rows("token_embd.weight", [7, 5, 6, 5]).any()
        table = opened.tensors["token_embd.weight"]
        assert server.ranges[-1][0] == f"bytes={table.offset + 5 * ROW}-{table.offset + 8 * ROW - 1}"
        assert opened.source.requests == before + 1
        np.testing.assert_array_equal(opened.rows("token_embd.weight", [5, 900]), np.zeros((2, N_EMBD), np.float32))
        assert opened.source.requests == before + 3
