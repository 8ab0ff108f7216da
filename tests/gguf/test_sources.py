"""Byte sources: exact reads, or an error that says what was asked and what there is."""

import io

import pytest

from bridge.errors import InputError, SourceError
from bridge.gguf import BytesSource, FileObjectSource, FileSource

DATA = bytes(range(256)) * 4


@pytest.fixture(params=["bytes", "file object", "file"])
def source(request, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    made = {
        "bytes": lambda: BytesSource(DATA),
        "file object": lambda: FileObjectSource(io.BytesIO(DATA)),
        "file": lambda: FileSource(path),
    }[request.param]()
    with made:
        yield made


def test_reads(source):
    assert source.size == 1024
    assert source.read(0, 4) == DATA[:4] and source.read(1020, 4) == DATA[1020:] and source.read(1024, 0) == b""
    assert (source.reads, source.bytes_read) == (2, 8)


def test_streams(source):
    pieces = list(source.stream(10, 1000, chunk=300))
    assert [len(piece) for piece in pieces] == [300, 300, 300, 100] and b"".join(pieces) == DATA[10:1010]
    assert list(source.stream(5, 0)) == []


@pytest.mark.parametrize("offset, length", [(1020, 5), (1025, 0), (2**70, 1), (0, 2**70)])
def test_past_the_end(source, offset, length):
    for ask in (source.read, source.stream):
        with pytest.raises(InputError, match="past the end of a 1024-byte file"):
            ask(offset, length)


@pytest.mark.parametrize("offset, length", [(-1, 1), (0, -1)])
def test_negative(source, offset, length):
    with pytest.raises(InputError, match="offset and length of at least 0"):
        source.read(offset, length)


def test_no_chunk(source):
    with pytest.raises(InputError, match="at least 1 byte, got 0"):
        source.stream(0, 4, chunk=0)


def test_file_that_shrinks(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    with FileSource(path) as source:
        path.write_bytes(DATA[:100])
        with pytest.raises(SourceError, match="returned 4 of 8 bytes at offset 96"):
            source.read(96, 8)


def test_identity_tells_versions_of_a_file_apart(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    first = FileSource(path)
    path.write_bytes(DATA + b"x")
    second = FileSource(path)
    assert first.identity != second.identity
    first.close(), second.close()
    first.close()  # twice is fine
    with pytest.raises(SourceError, match="reading the file failed"):
        first.read(0, 1)


def test_a_file_object_that_reads_in_bits():
    class Raw(io.BytesIO):
        def read(self, n=-1):
            return super().read(min(n, 3))

    assert FileObjectSource(Raw(DATA)).read(1, 100) == DATA[1:101]


def test_unfit_file_objects():
    with pytest.raises(InputError, match="opened in binary mode; it reads str"):
        FileObjectSource(io.StringIO("text")).read(0, 2)
    closed = io.BytesIO(DATA)
    closed.close()
    for unfit in (closed, type("OnlyRead", (), {"read": lambda self, n: b""})()):
        with pytest.raises(InputError, match="must be open and seekable"):
            FileObjectSource(unfit)


def test_what_is_read_from_memory_are_copies():
    buffer = bytearray(DATA)
    got = BytesSource(buffer).read(0, 4)
    buffer[0] = 99
    assert got == DATA[:4]
