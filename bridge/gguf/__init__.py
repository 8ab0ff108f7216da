"""The GGUF container: limits, header parser, tensor table and byte sources. Knows nothing about models."""

from .errors import GGUFError, GGUFLimitExceeded, GGUFTruncated, GGUFUnsupported
from .header import GGUFHeader, HeaderParser, Metadata, header_reads
from .limits import DEFAULT_LIMITS, GGUFLimits
from .reader import AsyncGGUFFile, GGUFFile, open_gguf, open_gguf_async
from .shards import shard_names
from .sources import BytesSource, ByteSource, FileObjectSource, FileSource, JoinedSource
from .strings import StringArray
from .tensors import TensorInfo

__all__ = [
    "AsyncGGUFFile",
    "ByteSource",
    "BytesSource",
    "DEFAULT_LIMITS",
    "FileObjectSource",
    "FileSource",
    "GGUFError",
    "GGUFFile",
    "GGUFHeader",
    "GGUFLimitExceeded",
    "GGUFLimits",
    "GGUFTruncated",
    "GGUFUnsupported",
    "HeaderParser",
    "JoinedSource",
    "Metadata",
    "StringArray",
    "TensorInfo",
    "header_reads",
    "open_gguf",
    "open_gguf_async",
    "shard_names",
]
