"""open_gguf: what it accepts, the values it gives, and the bytes it reads for them."""

import asyncio
import io

import numpy as np
import pytest

from bridge.errors import InputError, ModelError, SourceError
from bridge.gguf import BytesSource, GGUFError, open_gguf, open_gguf_async
from tests.gguf.forge import gguf, small_model, tensor
from tests.gguf.scripted_server import ScriptedServer

FILE = small_model()
B_ROWS = np.stack([np.concatenate([np.arange(i, i + 32), np.arange(i + 1, i + 33)]) for i in (0, 2, 4)]) * np.float32(0.5)


@pytest.fixture(params=["path", "str", "bytes", "memoryview", "file object", "source", "url"])
def opened(request, tmp_path):
    path = tmp_path / "small.gguf"
    path.write_bytes(FILE)
    if request.param == "url":
        with ScriptedServer(FILE, ["good"]) as server, open_gguf(server.url) as file:
            yield file
        return
    source = {
        "path": lambda: path,
        "str": lambda: str(path),
        "bytes": lambda: FILE,
        "memoryview": lambda: memoryview(FILE),
        "file object": lambda: io.BytesIO(FILE),
        "source": lambda: BytesSource(FILE),
    }[request.param]()
    with open_gguf(source) as file:
        yield file


def test_every_kind_of_source_gives_the_same(opened):
    assert opened.architecture == "llama" and opened.size == len(FILE)
    np.testing.assert_array_equal(opened.array("a.weight"), np.arange(8, dtype=np.float32).reshape(2, 4))
    np.testing.assert_array_equal(opened.array("b.weight"), B_ROWS)
    assert opened.bytes("a.weight") == np.arange(8, dtype="<f4").tobytes()
    np.testing.assert_array_equal(opened.rows("b.weight", [2, 0]), B_ROWS[[2, 0]])


@pytest.mark.parametrize(
    "ids, nbytes, reads",
    [([1], 68, 1), ([0, 1, 2], 204, 1), ([2, 0, 2, 2], 136, 2), ([], 0, 0), (np.array([1, 2]), 136, 1), (range(2), 136, 1)],
)
def test_rows_read_only_those_rows(ids, nbytes, reads):
    file = open_gguf(FILE)
    before, reads_before = file.bytes_read, file.source.reads
    rows = file.rows("b.weight", ids)
    assert rows.dtype == np.float32 and rows.shape == (len(ids), 64)
    np.testing.assert_array_equal(rows, B_ROWS[list(ids)])
    assert file.bytes_read - before == nbytes and file.source.reads - reads_before == reads


@pytest.mark.parametrize("bad", [3, -1, 2**32 + 1, 2**64, 1.5, 1.0, float("nan"), "2", None, True, b"1", np.float32(1)])
def test_rows_that_are_not_rows(bad):
    file = open_gguf(FILE)
    before = file.bytes_read
    with pytest.raises(InputError, match="b.weight: row .* is not one of its 3 rows"):
        file.rows("b.weight", [0, bad])
    assert file.bytes_read == before


@pytest.mark.parametrize("bad", [1, "12", b"12", None, {0: 1}, 1.5])
def test_rows_takes_a_list(bad):
    with pytest.raises(InputError, match="takes a list of row indices"):
        open_gguf(FILE).rows("b.weight", bad)


def test_a_stack_of_matrices_is_a_stack_of_rows():
    data = np.arange(24, dtype="<f4")
    file = open_gguf(gguf([], [tensor("experts", [4, 3, 2], 0, 0)], data.tobytes()))
    np.testing.assert_array_equal(file.rows("experts", [4]), data.reshape(6, 4)[[4]])
    assert file.array("experts").shape == (2, 3, 4)


def test_integers_keep_their_type():
    data = np.array([2**40, -1], "<i8")
    file = open_gguf(gguf([], [tensor("ids", [2], 27, 0)], data.tobytes()))
    assert file.array("ids").dtype == np.int64 and file.array("ids").tolist() == [2**40, -1]
    assert file.rows("ids", [0]).dtype == np.float32


def test_unknown_tensor():
    for ask in (lambda f: f.bytes("c"), lambda f: f.array("c"), lambda f: f.rows("c", [0])):
        with pytest.raises(ModelError, match="the file has no tensor 'c'; it has 2 tensors"):
            ask(open_gguf(FILE))


def test_header_costs_one_read_of_a_small_file():
    source = BytesSource(FILE)
    open_gguf(source)
    assert source.reads == 1 and source.bytes_read == len(FILE)


def test_one_row_of_a_large_file_over_http():
    """The open, the header, the row: three requests, and a sliver of the file."""
    n_rows = 20_000
    file = gguf([], [tensor("table", [64, n_rows], 0, 0)], np.arange(n_rows * 64, dtype="<f4").tobytes())
    with ScriptedServer(file, ["good"]) as server, open_gguf(server.url) as opened:
        np.testing.assert_array_equal(opened.rows("table", [12_345])[0], np.arange(64, dtype=np.float32) + 12_345 * 64)
        assert len(server.ranges) == 3
        assert server.ranges[0] == ("bytes=0-0", None)
        assert opened.bytes_read < len(file) * 0.06
        assert all(if_range == '"v1"' for _, if_range in server.ranges[1:])


def test_no_validator_over_http():
    answers = [{"set": {"ETag": None}}]
    with ScriptedServer(FILE, answers) as server:
        with pytest.raises(SourceError, match="neither a strong ETag nor Last-Modified"):
            open_gguf(server.url)
        assert open_gguf(server.url, allow_unvalidated=True).source.identity is None


@pytest.mark.parametrize("source", [None, 7, {"a": 1}, object()])
def test_things_that_hold_no_file(source):
    with pytest.raises(InputError, match="open_gguf takes a path, a URL, bytes, a binary file object, or a list of these .*, got"):
        open_gguf(source)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(SourceError, match="cannot open 'missing.gguf': No such file or directory"):
        open_gguf(tmp_path / "missing.gguf")
    with pytest.raises(SourceError, match="Is a directory"):
        open_gguf(tmp_path)


def test_a_refused_file_is_closed(tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"nothing of the sort")
    with pytest.raises(GGUFError):
        open_gguf(path)
    own = io.BytesIO(b"nothing of the sort")
    with pytest.raises(GGUFError):
        open_gguf(own)
    assert not own.closed  # the caller's file stays the caller's


class AsyncBytes:
    """An async source over bytes, that counts what it gave."""

    def __init__(self, data, size):
        self.data, self.size, self.given = data, size, 0

    async def read(self, offset, length):
        await asyncio.sleep(0)
        piece = self.data[offset : offset + length]
        self.given += len(piece)
        return memoryview(piece)


@pytest.mark.parametrize("size", [len(FILE), None])
def test_async_form(size):
    async def use():
        source = AsyncBytes(FILE, size)
        file = await open_gguf_async(source)
        assert file.architecture == "llama" and list(file.tensors) == ["a.weight", "b.weight"] and file.size == size
        before = source.given
        np.testing.assert_array_equal(await file.rows("b.weight", [1]), B_ROWS[[1]])
        assert source.given - before == 68
        np.testing.assert_array_equal(await file.array("b.weight"), B_ROWS)
        assert await file.bytes("a.weight") == np.arange(8, dtype="<f4").tobytes()
        with pytest.raises(InputError, match="is not one of its 3 rows"):
            await file.rows("b.weight", [3])

    asyncio.run(use())


def test_async_form_refuses_like_the_sync_one():
    with pytest.raises(GGUFError, match="not a GGUF file"):
        asyncio.run(open_gguf_async(AsyncBytes(b"<html>" * 100, 600)))
