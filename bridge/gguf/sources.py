"""Where a file's bytes come from: a path, a file object or bytes in memory (http is in ``http_source``).

A source answers ``size``, ``identity``, ``read(offset, length)``, ``stream(offset, length)`` and ``close()``. A read
gives exactly the bytes asked for or raises; it never comes back short. The files of a split model are one source too:
they are read as if they lay end to end.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from io import SEEK_END
from itertools import accumulate
from typing import BinaryIO

from bridge.errors import InputError, SourceError

STREAM_CHUNK = 4 * 1024 * 1024


class ByteSource(ABC):
    """A file of ``size`` bytes that can be read at any offset.

    ``identity`` is a string that changes when the content does, or None where nothing can tell. ``is_remote``: every read
    is a request. ``bytes_read`` and ``reads`` count what was really fetched.
    """

    bytes_read: int
    reads: int

    size: int
    identity: str | None = None
    is_remote = False

    def __init__(self, size: int):
        self.size = size
        self.bytes_read = 0
        self.reads = 0

    @property
    def shards(self) -> tuple[int, ...]:
        """Sizes of the files that the source consists of, in order; one unless it joins a split model."""
        return (self.size,)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``; raises InputError for a range outside the file, else SourceError."""
        self._check_range(offset, length)
        if not length:
            return b""
        data = self._read(offset, length)
        if len(data) != length:
            raise SourceError(
                f"the source returned {len(data)} of {length} bytes at offset {offset}; the file changed or ended early"
            )
        self.reads += 1
        self.bytes_read += length
        return data

    def stream(self, offset: int, length: int, chunk: int = STREAM_CHUNK) -> Iterator[bytes]:
        """The same bytes in order, in pieces of at most ``chunk`` bytes, one piece in memory at a time."""
        self._check_range(offset, length)
        if chunk < 1:
            raise InputError(f"a stream's chunk is at least 1 byte, got {chunk}")
        return self._stream(offset, length, chunk)

    def close(self) -> None:
        """Let go of files and connections; closing twice is fine."""

    def _check_range(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0:
            raise InputError(f"a read needs offset and length of at least 0, got {offset} and {length}")
        if offset + length > self.size:
            raise InputError(f"bytes {offset}-{offset + length - 1} are past the end of a {self.size}-byte file")

    def _stream(self, offset: int, length: int, chunk: int) -> Iterator[bytes]:
        end = offset + length
        while offset < end:
            piece = self.read(offset, min(chunk, end - offset))
            offset += len(piece)
            yield piece

    @abstractmethod
    def _read(self, offset: int, length: int) -> bytes: ...

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()


class BytesSource(ByteSource):
    """Bytes that are already in memory."""

    def __init__(self, data: bytes | bytearray | memoryview):
        self._data = memoryview(data).cast("B")
        super().__init__(len(self._data))

    def _read(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])


class FileObjectSource(ByteSource):
    """A seekable binary file object; the caller keeps it open and closes it."""

    def __init__(self, file: BinaryIO):
        try:
            size = file.seek(0, SEEK_END)
        except (AttributeError, OSError, ValueError) as error:
            raise InputError(f"a GGUF file object must be open and seekable: {error}") from None
        self._file = file
        super().__init__(size)

    def _read(self, offset: int, length: int) -> bytes:
        try:
            self._file.seek(offset)
            pieces = []
            while length:
                piece = self._file.read(length)
                if not isinstance(piece, bytes):
                    raise InputError(f"a GGUF file object must be opened in binary mode; it reads {type(piece).__name__}")
                if not piece:
                    break
                pieces.append(piece)
                length -= len(piece)
        except (OSError, ValueError) as error:
            raise SourceError(f"reading the file failed: {error}") from error
        return b"".join(pieces)


class FileSource(FileObjectSource):
    """A file on disk, opened here and closed here."""

    def __init__(self, path: str | os.PathLike):
        name = os.path.basename(os.fspath(path))
        try:
            file = open(path, "rb")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SourceError(f"cannot open {name!r}: {reason}") from error
        super().__init__(file)
        self.identity = f"{self.size}-{os.fstat(file.fileno()).st_mtime_ns}"

    def close(self) -> None:
        self._file.close()


class JoinedSource(ByteSource):
    """The files of a split model, one after another; closing it closes them all."""

    def __init__(self, parts: Sequence[ByteSource]):
        if not parts:
            raise InputError("a split model has at least one file, got none")
        self._parts = tuple(parts)
        self._starts = [0, *accumulate(part.size for part in parts)]
        self.size = self._starts[-1]
        identities = [part.identity for part in parts]
        self.identity = None if None in identities else " ".join(identities)
        self.is_remote = any(part.is_remote for part in parts)

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(part.size for part in self._parts)

    @property
    def bytes_read(self) -> int:
        return sum(part.bytes_read for part in self._parts)

    @property
    def reads(self) -> int:
        return sum(part.reads for part in self._parts)

    def read(self, offset: int, length: int) -> bytes:
        self._check_range(offset, length)
        return self._read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        pieces = [part.read(start, n) for part, start, n in self._ranges(offset, length)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _stream(self, offset: int, length: int, chunk: int) -> Iterator[bytes]:
        for part, start, n in self._ranges(offset, length):
            yield from part.stream(start, n, chunk)

    def _ranges(self, offset: int, length: int) -> Iterator[tuple[ByteSource, int, int]]:
        """The parts that bytes [offset, offset + length) lie in, each with its own offset and length."""
        end = offset + length
        i = max(bisect_right(self._starts, offset) - 1, 0)
        while offset < end:
            stop = min(end, self._starts[i + 1])
            if stop > offset:
                yield self._parts[i], offset - self._starts[i], stop - offset
            offset, i = stop, i + 1

    def close(self) -> None:
        for part in self._parts:
            part.close()
