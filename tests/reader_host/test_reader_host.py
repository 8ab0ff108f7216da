"""The calls of web/gguf.js, answered under CPython: what comes back, and how errors do."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest

from bridge.gguf import open_gguf
from bridge.reader_host import ReaderHost, host
from tests.gguf import forge
from tests.gguf.split_model import write_shards
from tests.golden import MODELS

WEB = Path(__file__).parents[2] / "web"
LLAMA = MODELS / "llama-untied-f16.gguf"
SMALL = forge.small_model()


class Floats:
    """A Float32Array as far as the host uses one."""

    def __init__(self, values):
        self.values = values

    def subarray(self, first, end):
        return Floats(self.values[first:end])

    def assign(self, values):
        assert values.dtype == np.float32 and values.size == self.values.size
        self.values[:] = values


class Bytes(bytes):
    """What the page gives for a read."""

    def to_bytes(self):
        return bytes(self)


class Page:
    """A page with a file; ``reads`` lists (call, offset, length). ``data`` None: it cannot be read any more."""

    def __init__(self, data):
        self.data, self.reads, self.packages, self.calls = data, [], [], 0
        self.host = ReaderHost(self.read, self.load_package, lambda n: Floats(np.zeros(n, np.float32)))

    async def read(self, call, offset, length):
        self.reads.append((call, offset, length))
        await asyncio.sleep(0)
        if self.data is None:
            raise RuntimeError("a JavaScript error")
        return Bytes(self.data[offset : offset + length])

    async def load_package(self, name):
        self.packages.append(name)

    async def call(self, method, *arguments, file=1):
        self.calls += 1
        return await self.host.call(self.calls, file, method, list(arguments))

    async def open(self, shards=None, limits=None, file=1):
        return await self.call("open", len(self.data), shards, limits, file=file)


def run(data, *calls):
    """Open ``data`` and make the calls; the last reply."""

    async def use():
        page = Page(data)
        reply = await page.open()
        for call in calls:
            reply = await page.call(*call)
        return reply

    return asyncio.run(use())


def value(data, *calls):
    reply = run(data, *calls)
    assert "error" not in reply, reply
    return reply["value"]


def error(data, *calls):
    reply = run(data, *calls)
    assert set(reply) == {"error"}, reply
    return reply["error"]


def test_the_header():
    found = value(SMALL)
    with open_gguf(SMALL) as file:
        assert (found["version"], found["architecture"]) == (3, "llama")
        assert (found["dataOffset"], found["alignment"]) == (file.data_offset, 32)
        assert found["tensors"] == [
            ["a.weight", "F32", [2, 4], file.data_offset, 32, 0],
            ["b.weight", "Q8_0", [3, 64], file.data_offset + 32, 204, 0],
        ]
        metadata = {key: (type, *rest) for key, type, *rest in found["metadata"]}
        assert list(metadata) == list(file.metadata)
    assert metadata["test.u64"] == ("u64", 7, None) and metadata["test.bool"] == ("bool", True, None)
    assert metadata["test.flags"] == ("array of bool", [True, False, True], None)
    assert metadata["test.scores"] == ("array of f32", [0.5, -1.0], None)


def test_long_arrays_stay_until_they_are_asked_for():
    n = host.INLINE_LENGTH + 1
    tokens = [f"t{i}" for i in range(n)]
    data = forge.gguf([
        forge.entry("tokens", forge.array("string", tokens)),
        forge.entry("scores", forge.array("f32", range(n))),
        forge.entry("flags", forge.array("bool", [1] * n)),
        forge.entry("just", forge.array("u8", range(n - 1))),
    ])  # fmt: skip
    metadata = {key: rest for key, _, *rest in value(data)["metadata"]}
    assert metadata["tokens"] == [tokens[: host.PREVIEW_LENGTH], n]
    assert metadata["scores"] == [list(range(host.PREVIEW_LENGTH)), n]
    assert metadata["just"] == [list(range(n - 1)), None]
    assert value(data, ("metadataArray", "tokens")) == tokens
    assert list(value(data, ("metadataArray", "scores"))) == list(range(n))
    assert value(data, ("metadataArray", "flags")) == [True] * n
    assert error(data, ("metadataArray", "none"))["code"] == "INVALID_MODEL"


def test_rows_and_floats():
    with open_gguf(SMALL) as file:
        np.testing.assert_array_equal(value(SMALL, ("rows", "b.weight", [2, 0])), file.rows("b.weight", [2, 0]).reshape(-1))
        np.testing.assert_array_equal(value(SMALL, ("floats", "b.weight")).values, file.array("b.weight").reshape(-1))


def test_floats_are_decoded_piece_by_piece(monkeypatch):
    monkeypatch.setattr(host, "PIECE_BYTES", 100)  # two blocks of 34 bytes
    with open_gguf(SMALL) as file:
        np.testing.assert_array_equal(value(SMALL, ("floats", "b.weight")).values, file.array("b.weight").reshape(-1))


def test_a_row_costs_its_bytes_and_names_its_call():
    async def use():
        page = Page(SMALL)
        await page.open()
        header_reads = len(page.reads)
        await page.call("rows", "b.weight", [1])
        return page, header_reads

    page, header_reads = asyncio.run(use())
    assert header_reads == 1 and page.reads[0] == (1, 0, len(SMALL))
    assert [(call, length) for call, _, length in page.reads[1:]] == [(2, 68)]
    assert page.packages == ["numpy"]


def test_calls_at_the_same_time_do_not_mix():
    async def use():
        page = Page(SMALL)
        await page.open()
        await page.open(file=2)
        return await asyncio.gather(*(page.call("rows", "b.weight", [i % 3], file=1 + i % 2) for i in range(12)))

    replies = asyncio.run(use())
    with open_gguf(SMALL) as file:
        for i, reply in enumerate(replies):
            np.testing.assert_array_equal(reply["value"], file.rows("b.weight", [i % 3])[0])


def test_tokens():
    data = LLAMA.read_bytes()
    with open_gguf(data) as file:
        tokenizer = file.tokenizer()
    text = "Hello naïve world"
    ids = tokenizer.encode(text)
    assert value(data, ("encode", text, True, True)) == ids
    assert value(data, ("encode", memoryview(text.encode()), False, True)) == tokenizer.encode(text, add_special=False)
    assert value(data, ("decode", ids, True)) == tokenizer.decode_bytes(ids, special=True)
    assert b"".join(value(data, ("pieces", ids))) == b"".join(tokenizer.token_bytes(i, special=True) for i in ids)
    facts = value(data, ("vocabulary",))
    assert facts["nVocab"] == tokenizer.n_vocab and facts["eosId"] == tokenizer.eos_id and facts["addBos"] == tokenizer.add_bos
    assert error(data, ("decode", [10**9], False))["code"] == "INVALID_INPUT"


def test_a_file_without_a_tokenizer_says_so():
    found = error(forge.gguf(), ("encode", "text", True, True))
    assert found["code"] in ("INVALID_MODEL", "UNSUPPORTED") and "tokenizer" in found["message"]


def test_a_split_model(tmp_path):
    with open_gguf(LLAMA) as whole:
        n = len(whole.tensors)
    shards = [path.read_bytes() for path in write_shards(LLAMA, tmp_path, [4, n - 4])]

    async def use():
        page = Page(b"".join(shards))
        alone = await page.open()
        return alone, await page.open(shards=[len(shard) for shard in shards]), await page.call("floats", "output.weight")

    alone, together, floats = asyncio.run(use())
    assert "glued together" in alone["error"]["message"]
    assert len(together["value"]["tensors"]) == n and {tensor[5] for tensor in together["value"]["tensors"]} == {0, 1}
    with open_gguf(LLAMA) as whole:
        np.testing.assert_array_equal(floats["value"].values, whole.array("output.weight").reshape(-1))


@pytest.mark.parametrize(
    "data, code, needs_more", [(b"<html>", "INVALID_GGUF", False), (SMALL[:90], "TRUNCATED_GGUF", True), (b"", "TRUNCATED_GGUF", True)]
)
def test_what_is_wrong_with_a_file(data, code, needs_more):
    found = error(data)
    assert (found["code"], found["needsMoreBytes"]) == (code, needs_more)


@pytest.mark.parametrize(
    "limits, message",
    [
        ({"maxTensors": 1}, "claims 2 tensors; the limit is 1 (max_tensors)"),
        ({"maxHeaderBytes": 100}, "the limit is 100 (max_header_bytes)"),
        ({"maxTensor": 1}, "there is no limit 'maxTensor'; there are maxHeaderBytes, "),
        ({"maxTensors": 0}, "the limit maxTensors is 0; it must be a whole number of at least 1"),
        ({"maxTensors": 1.5}, "the limit maxTensors is 1.5"),
        ({"maxTensors": True}, "the limit maxTensors is True"),
        ({"maxTensors": "9"}, "the limit maxTensors is of type str"),
        ([1], "limits is an object of numbers, got list"),
    ],
)
def test_limits(limits, message):
    async def use():
        return await Page(SMALL).open(limits=limits)

    assert message in asyncio.run(use())["error"]["message"]


def test_the_declared_limits_are_those_there_are():
    declared = re.search(r"interface Limits \{(.*?)\n\}", (WEB / "gguf.d.ts").read_text(), re.DOTALL)[1]
    assert re.findall(r"(\w+)\?: number", declared) == list(host.LIMITS)


def test_a_page_that_cannot_read():
    async def use():
        page = Page(SMALL)
        await page.open()
        page.data = None
        return await page.call("rows", "b.weight", [1])

    assert asyncio.run(use())["error"] == {
        "code": "SOURCE_FAILED", "message": "the page could not read the file", "needsMoreBytes": False,
    }  # fmt: skip


def test_a_page_that_reads_short():
    async def use():
        page = Page(SMALL)
        await page.open()
        page.data = SMALL[:-10]
        return await page.call("rows", "b.weight", [2])

    assert asyncio.run(use())["error"]["message"] == f"the source returned 58 of 68 bytes at offset {len(SMALL) - 68}"


def test_a_closed_file_is_forgotten(capsys):
    async def use():
        page = Page(SMALL)
        await page.open()
        return await page.call("close"), await page.call("close"), await page.call("rows", "b.weight", [0])

    first, second, after = asyncio.run(use())
    assert (first, second) == ({"value": True}, {"value": False})
    assert after["error"]["code"] == "CLOSED"
    assert capsys.readouterr().err == ""


def test_a_mistake_of_our_own_is_an_answer_too(capsys):
    assert error(SMALL, ("rows", "b.weight"))["code"] == "INTERNAL"
    assert "TypeError" in capsys.readouterr().err
