"""Cutting a stream of file bytes into the segments that buffers want."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bridge.errors import SourceError
from bridge.gpu.device import Segment
from bridge.gpu.upload import MAX_GAP, SegmentWriter, ranges_of

FILE = bytes(i * 7 % 251 for i in range(4000))
SEGMENTS = [Segment(10, 1, 0, "a"), Segment(11, 6, 1, "b"), Segment(64, 1000, 2, "c"), Segment(1067, 33, 3, "d")]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 64, 999, 4000])
def test_segments_are_whole_whatever_the_chunks(chunk):
    filled = {}

    def write(segment, offset, data):
        assert offset % 4 == 0 and len(data) % 4 == 0 and len(data)
        written = filled.setdefault(segment.name, bytearray())
        assert offset == len(written)
        written += data

    writer = SegmentWriter(5, SEGMENTS, write)
    for start in range(5, 1100, chunk):
        writer.feed(FILE[start:min(start + chunk, 1100)])
    writer.finish()
    for segment in SEGMENTS:
        expected = FILE[segment.offset:segment.offset + segment.length]
        assert filled[segment.name] == expected.ljust(-(-len(expected) // 4) * 4, b"\0")


def test_a_stream_that_ends_early_is_an_error_naming_the_tensor():
    writer = SegmentWriter(64, SEGMENTS[2:], lambda segment, offset, data: None)
    writer.feed(FILE[64:1064])
    writer.feed(FILE[1064:1080])
    with pytest.raises(SourceError, match="ended at byte 1080 .* tensor d, which ends at byte 1100"):
        writer.finish()


def test_ranges_skip_only_large_gaps():
    far = Segment(1100 + MAX_GAP, 4, 4, "e")
    farther = Segment(far.offset + 4 + MAX_GAP + 1, 8, 5, "f")
    assert ranges_of(SEGMENTS) == [(10, 1100, 4)]
    assert ranges_of([*SEGMENTS, far, farther]) == [(10, far.offset + 4, 5), (farther.offset, farther.offset + 8, 1)]
    assert ranges_of([]) == []
    with pytest.raises(ValueError, match="segment b begins at byte 11, before the last one ended"):
        ranges_of([Segment(10, 2, 0, "a"), SEGMENTS[1]])


def test_the_page_cuts_streams_alike():
    node = shutil.which("node")
    assert node, "node is needed to test the page's side"
    run = subprocess.run([node, "--test", Path(__file__).with_name("segment_writer.test.mjs")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
