"""Cutting a file's stream into whole steps."""

import asyncio

import numpy as np
import pytest

from bridge.errors import Cancelled, SourceError
from bridge.graph import GraphBuilder
from bridge.runtime.cancel import CancelToken
from bridge.simd.host import Span
from bridge.simd.upload import MAX_GAP, StepWriter, ranges_of
from tests.simd.harness import Tensors, open_session, reference_of


def span(offset, length, step, name="x"):
    return Span(offset, length, name, step, step, None)


SPANS = [span(3, 20, 4, "a"), span(23, 7, 7, "b"), span(40, 11, 3, "c")]


@pytest.mark.parametrize("capacity", [7, 8, 13, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 60])
def test_any_cut_of_the_stream_gives_the_same_steps(size, capacity):
    data, staged, taken = bytes(range(60)), bytearray(capacity), {}

    def stage(at, piece):
        staged[at:at + len(piece)] = piece

    def take(span, done, count):
        assert done % span.step == 0 and done == len(taken.get(span.name, b""))
        assert count % span.step == 0 or done + count == span.length
        taken[span.name] = taken.get(span.name, b"") + bytes(staged[:count])

    writer = StepWriter(0, SPANS, capacity, stage, take)
    for at in range(0, 60, size):
        writer.feed(data[at:at + size])
    writer.finish()
    assert taken == {s.name: data[s.offset:s.offset + s.length] for s in SPANS}


def test_a_stream_that_ends_early_names_the_tensor():
    writer = StepWriter(0, SPANS, 100, lambda at, data: None, lambda *part: None)
    writer.feed(bytes(30))
    with pytest.raises(SourceError, match="ended at byte 30 of the file, inside tensor c, which ends at byte 51"):
        writer.finish()


def test_ranges_join_what_lies_close_together():
    far = 100 + MAX_GAP
    assert ranges_of([span(0, 50, 1), span(60, 40, 1), span(far, 5, 1), span(far + MAX_GAP + 6, 1, 1)]) == [
        (0, far + 5, 3), (far + MAX_GAP + 6, far + MAX_GAP + 7, 1)]


def test_spans_may_not_overlap():
    with pytest.raises(ValueError, match="span b begins at byte 3, before the last one ended"):
        ranges_of([span(0, 4, 1, "a"), span(3, 2, 1, "b")])


class Trickle:
    """A file that arrives in pieces of some bytes; ``stop`` is called after each."""

    js = None

    def __init__(self, data, piece, stop=lambda: None):
        self.size, self._data, self._piece, self._stop = len(data), data, piece, stop

    async def stream(self, offset, length):
        for at in range(offset, offset + length, self._piece):
            yield self._data[at:min(at + self._piece, offset + length)]
            self._stop()


def graph_and_tensors():
    tensors = Tensors(alignment=1)  # tensors at any byte
    tensors.add_blocks("e", "Q4_1", 13, 64)
    tensors.add_blocks("n.weight", "F16", 64)
    tensors.add_blocks("w.weight", "Q6_K", 9, 256)
    tensors.add_blocks("wide", "F32", 256, 64)
    tensors.infos["wide.weight"] = tensors.infos.pop("wide")
    tensors.infos["wide.weight"] = type(tensors.infos["wide.weight"])(
        "wide.weight", *(getattr(tensors.infos["wide.weight"], f) for f in ("type", "shape", "offset", "nbytes")))
    b = GraphBuilder(tensors.infos)
    x = b.rms_norm(b.embed("e", 13, 64), "n", 1e-5)
    return b.finish(b.select_outputs(b.matmul(b.matmul(x, "wide", 256), "w", 9)), 64), tensors


@pytest.mark.parametrize("piece", [1, 97, 100_000])
def test_a_file_in_pieces_of_any_size(host, piece):
    graph, tensors = graph_and_tensors()

    async def loaded():
        from bridge.plan import lower
        from bridge.simd.session import SimdSession

        session = await SimdSession.create(host, lower(graph), n_ctx=16, n_ubatch=4, max_outputs=4, precision="exact")
        await session.load_weights(Trickle(tensors.data, piece), tensors.infos, lambda *counts: None, CancelToken())
        return np.array(await session.evaluate([12, 0, 5], 0, [0, 1, 2]))

    got = asyncio.run(loaded())
    expected = asyncio.run(reference_of(graph, tensors).evaluate([12, 0, 5], 0, [0, 1, 2]))
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_progress_counts_the_files_bytes_and_a_cancelled_upload_stops(hosts):
    graph, tensors = graph_and_tensors()
    seen, token = [], CancelToken()

    async def load(cancel_after=None):
        session = await open_session(hosts("relaxed"), graph, tensors)
        source = Trickle(tensors.data, 1000, lambda: token.cancel() if len(seen) == cancel_after else None)
        await session.load_weights(source, tensors.infos, lambda loaded, total: seen.append((loaded, total)), token)

    asyncio.run(load())
    assert seen == sorted(seen) and seen[-1] == (len(tensors.data), len(tensors.data)) and seen[0][0] < 3000
    seen.clear()
    with pytest.raises(Cancelled):
        asyncio.run(load(cancel_after=3))
    assert len(seen) == 3
