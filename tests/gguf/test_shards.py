"""Split models read as one, whatever shard they are opened by; sets that are not one, and files glued by cat."""

import asyncio
import io
import shutil

import numpy as np
import pytest

from bridge.errors import InputError, SourceError
from bridge.gguf import BytesSource, FileSource, GGUFError, JoinedSource, open_gguf, open_gguf_async, shard_names
from bridge.runtime import LoadOptions, load_model
from bridge.serve import create_app, running_server
from tests.gguf.forge import entry, gguf, small_model, tensor, value
from tests.gguf.split_model import write_shards
from tests.golden import MODELS

WHOLE = MODELS / "llama-untied-f16.gguf"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    n = len(open_gguf(WHOLE).tensors)
    return write_shards(WHOLE, tmp_path_factory.mktemp("set"), [5, 1, n - 6])


def assert_same_model(opened):
    with open_gguf(WHOLE) as whole:
        assert opened.architecture == whole.architecture and set(opened.tensors) == set(whole.tensors)
        assert opened.metadata["tokenizer.ggml.tokens"] == whole.metadata["tokenizer.ggml.tokens"]
        for name in whole.tensors:
            assert opened.bytes(name) == whole.bytes(name)


@pytest.mark.parametrize("which", range(3))
def test_any_shard_opens_the_set(shards, which):
    with open_gguf(str(shards[which])) as opened:
        assert_same_model(opened)
        assert opened.size == sum(path.stat().st_size for path in shards)
        assert opened.source.shards == tuple(path.stat().st_size for path in shards)
        assert [sum(t.shard == i for t in opened.tensors.values()) for i in range(3)] == [5, 1, len(opened.tensors) - 6]


@pytest.mark.parametrize("kind", ["paths", "bytes", "file objects", "sources"])
def test_a_list_of_the_files(shards, kind):
    make = {"paths": str, "bytes": lambda p: p.read_bytes(), "file objects": lambda p: io.BytesIO(p.read_bytes()),
            "sources": FileSource}[kind]  # fmt: skip
    with open_gguf([make(path) for path in shards]) as opened:
        assert_same_model(opened)


def test_rows_are_read_from_the_shard_that_has_them(shards):
    with open_gguf(shards[0]) as opened, open_gguf(WHOLE) as whole:
        info = next(t for t in opened.tensors.values() if t.shard == 2 and len(t.shape) == 2)
        before = opened.bytes_read
        np.testing.assert_array_equal(opened.rows(info.name, [3, 1]), whole.rows(info.name, [3, 1]))
        assert opened.bytes_read - before == 2 * info.row_nbytes


def test_no_header_is_read_twice(shards):
    with open_gguf(shards[1]) as opened:
        assert opened.source.reads == 3  # one for each: these headers fit into one read


@pytest.mark.parametrize("which", [0, 2])
def test_over_http(shards, which):
    with running_server(create_app(shards[0].parent)) as address:
        with open_gguf(f"{address}/{shards[which].name}?download=true") as opened:
            assert_same_model(opened)


def test_a_split_model_computes_what_the_whole_one_does(shards):
    async def logits(path):
        model = await load_model(str(path), LoadOptions(n_ctx=32, backend="reference", kv_type="f32"))
        try:
            return np.array((await model.evaluate([1, 5, 9]))[-1])
        finally:
            await model.close()

    np.testing.assert_array_equal(asyncio.run(logits(shards[1])), asyncio.run(logits(WHOLE)))


def test_the_async_form_reads_a_joined_source(shards):
    class Async:
        def __init__(self, source):
            self.source, self.size, self.shards = source, source.size, source.shards

        async def read(self, offset, length):
            return self.source.read(offset, length)

    async def use():
        opened = await open_gguf_async(Async(JoinedSource([FileSource(path) for path in shards])))
        with open_gguf(WHOLE) as whole:
            for name in whole.tensors:
                assert await opened.bytes(name) == whole.bytes(name)

    asyncio.run(use())


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name, expected",
    [
        ("m-00002-of-00003.gguf", (["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"], 1)),
        ("dir/m-0001-of-00002.GGUF", (["dir/m-00001-of-00002.gguf", "dir/m-00002-of-00002.gguf"], 0)),
        ("http://h/a-0001-of-0002.gguf?x=-0009-of-0009.gguf#f",
         (["http://h/a-0001-of-0002.gguf?x=-0009-of-0009.gguf#f", "http://h/a-0002-of-0002.gguf?x=-0009-of-0009.gguf#f"], 0)),
        ("a?-0001-of-0002.gguf", (["a?-0001-of-0002.gguf", "a?-0002-of-0002.gguf"], 0)),  # a path may hold any character
        ("m-00001-of-00001.gguf", None),
        ("m-00000-of-00002.gguf", None),
        ("m-00003-of-00002.gguf", None),
        ("m-00001-of-00513.gguf", None),
        ("m-001-of-002.gguf", None),
        ("m-0000001-of-0000002.gguf", None),
        ("m-00001-of-00002.gguf.part", None),
        ("model.gguf", None),
    ],
)
def test_shard_names(name, expected):
    assert shard_names(name) == expected


# ---------------------------------------------------------------- sets that are none


def test_a_missing_shard_is_named(shards, tmp_path):
    shutil.copy(shards[0], tmp_path)
    shutil.copy(shards[2], tmp_path)
    with pytest.raises(SourceError, match="shard 2 of 3: cannot open 'model-00002-of-00003.gguf': No such file"):
        open_gguf(tmp_path / shards[0].name)


def test_a_missing_shard_on_a_server_is_named(shards, tmp_path):
    shutil.copy(shards[0], tmp_path)
    with running_server(create_app(tmp_path)) as address:
        with pytest.raises(SourceError, match="^shard 2 of 3: 404 Not Found$") as raised:
            open_gguf(f"{address}/{shards[0].name}")
    assert raised.value.status == 404


def test_shuffled_shards(shards, tmp_path):
    for source, target in zip(shards, [shards[0], shards[2], shards[1]]):
        shutil.copy(source, tmp_path / target.name)
    with pytest.raises(GGUFError, match="in the place of shard 2 of 3 says that it is shard 3: the shards are shuffled"):
        open_gguf(tmp_path / shards[0].name)
    with pytest.raises(GGUFError, match="in the place of shard 1 of 3 says that it is shard 2"):
        open_gguf([shards[1], shards[0], shards[2]])


def test_the_same_shard_twice(shards):
    with pytest.raises(GGUFError, match="in the place of shard 2 of 3 says that it is shard 1: .* one is there twice"):
        open_gguf([shards[0], shards[0], shards[2]])


def test_too_few_and_too_many(shards):
    with pytest.raises(GGUFError, match="shard 1 of 2 says that it is one of 3 files, 2 were given"):
        open_gguf(shards[:2])
    with pytest.raises(GGUFError, match="shard 1 of 4 says that it is one of 3 files, 4 were given"):
        open_gguf([*shards, shards[0]])
    with pytest.raises(InputError, match="at least one file, got none"):
        open_gguf([])


def test_a_name_that_counts_otherwise(shards, tmp_path):
    path = shutil.copy(shards[0], tmp_path / "model-00001-of-00002.gguf")
    with pytest.raises(GGUFError, match="name says 2 shards, its split.count is 3"):
        open_gguf(path)


def test_one_shard_alone(shards, tmp_path):
    data = shards[1].read_bytes()
    renamed = shutil.copy(shards[1], tmp_path / "model.gguf")
    for alone in (data, io.BytesIO(data), BytesSource(data), [data], renamed):
        with pytest.raises(GGUFError, match="shard 2 of 3 of a split model, and all 3 are needed$"):
            open_gguf(alone)
    with pytest.raises(GGUFError, match="shard 2 of 3 of a split model, and all 3 are needed$"):
        asyncio.run(open_gguf_async(AsyncBytes(data)))


def test_shards_of_two_models(shards, tmp_path):
    other = write_shards(WHOLE, tmp_path, [3, 3, len(open_gguf(WHOLE).tensors) - 6])
    with pytest.raises(GGUFError, match="is in shard 1 and again in shard 2 of 3: the files are not of one set"):
        open_gguf([shards[0], other[1], other[2]])
    with pytest.raises(GGUFError, match="the 3 shards hold .* tensors, their split.tensors.count is .*: the files are not of one set"):
        open_gguf([other[0], shards[1], shards[2]])
    third = write_shards(small_model(), tmp_path, [1, 0, 1], "small")
    with pytest.raises(GGUFError, match="different models: 'split.tensors.count' in shard 2 of 3 is not what the first"):
        open_gguf([shards[0], third[1], shards[2]])


def shard(number, count, /, **raw):
    """A forged shard without tensors; ``raw`` replaces or leaves out (None) single keys, ``tensors_count`` among them."""
    keys = {"no": value("u16", number), "count": value("u16", count), "tensors_count": value("i32", 0), **raw}
    return gguf([entry(f"split.{key.replace('_', '.')}", stored) for key, stored in keys.items() if stored])


@pytest.mark.parametrize(
    "second, message",
    [
        (gguf(), "shard 2 of 2 has no split.count, so it is no shard"),
        (shard(1, 2, no=None), "shard 2 of 2 has no split.no"),
        (shard(1, 2, no=value("string", "1")), "split.no of shard 2 of 2 is of type string; it must be an integer"),
        (shard(1, 2, count=value("bool", 1)), "split.count of shard 2 of 2 is of type bool; it must be an integer"),
        (shard(1, 2, count=value("i32", -2)), "split.count of shard 2 of 2 is -2; it must be at least 0"),
        (shard(1, 9), "shard 2 of 2 says that it is one of 9 files, 2 were given"),
        (b"<html>", "shard 2 of 2: not a GGUF file"),
        (shard(1, 2)[:70], "shard 2 of 2: the file ends inside its header"),
    ],
)
def test_a_second_file_that_is_no_second_shard(second, message):
    with pytest.raises(GGUFError, match=message):
        open_gguf([shard(0, 2), second])
    assert open_gguf([shard(0, 2), shard(1, 2)]).tensors == {}


def test_a_set_that_holds_too_few_tensors():
    with pytest.raises(GGUFError, match="the 2 shards hold 0 tensors, their split.tensors.count is 7"):
        open_gguf([shard(number, 2, tensors_count=value("i32", 7)) for number in (0, 1)])


def test_of_a_refused_set_only_what_was_opened_here_is_closed(shards, monkeypatch):
    closed = []
    monkeypatch.setattr(FileSource, "close", lambda self: closed.append(self))
    own = FileSource(shards[0])
    with pytest.raises(GGUFError):
        open_gguf([own, shards[0], shards[2]])
    assert len(closed) == 2 and own not in closed and own.read(0, 4) == b"GGUF"
    with pytest.raises(SourceError, match="shard 3 of 3: cannot open 'none'"):
        open_gguf([own, shards[1], "none"])
    assert len(closed) == 3


# ---------------------------------------------------------------- files glued by cat


class AsyncBytes:
    def __init__(self, data):
        self.data, self.size = data, len(data)

    async def read(self, offset, length):
        return self.data[offset : offset + length]


GLUED = "two GGUF files glued together: its own data ends at byte .* another header begins at byte {}; merge the shards with"


def test_glued_shards(shards, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"".join(shard.read_bytes() for shard in shards))
    with pytest.raises(GGUFError, match=GLUED.format(shards[0].stat().st_size)):
        open_gguf(path)
    with pytest.raises(GGUFError, match=GLUED.format(shards[0].stat().st_size)):
        asyncio.run(open_gguf_async(AsyncBytes(path.read_bytes()), seekable=True))
    # A source that only goes forwards cannot look; that it is a shard is told by the header.
    with pytest.raises(GGUFError, match="all 3 are needed; if this file was made by joining them, merge the shards with"):
        asyncio.run(open_gguf_async(AsyncBytes(path.read_bytes())))


@pytest.mark.parametrize("padding", [0, 20])
def test_glued_models_with_and_without_padding_between(padding):
    first = gguf([], [tensor("t", [3], 0, 0)], bytes(12 + padding))
    with pytest.raises(GGUFError, match=GLUED.format(len(first))):
        open_gguf(first + small_model())


def test_a_shard_without_tensors_glued():
    with pytest.raises(GGUFError, match="glued"):
        open_gguf(shard(0, 2) + shard(1, 2))


def test_what_follows_the_data_may_be_anything_else():
    source = BytesSource(small_model() + b"\0" * 1000 + b"GGUF")
    assert len(open_gguf(source).tensors) == 2


def test_a_whole_file_costs_no_extra_read():
    source = BytesSource(small_model())
    open_gguf(source)
    assert source.reads == 1
