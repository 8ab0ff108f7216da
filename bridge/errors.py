"""The error tree: every failure a caller can meet, each class with a stable ``code``.

A message is one sentence that says what was got and what was allowed. It never holds a model URL, a prompt or file
content, because pages show messages to people and log them; such data travels in attributes instead.
"""

from __future__ import annotations


class BridgeError(Exception):
    """Base of every error the package raises on purpose."""

    code = "BRIDGE_ERROR"


class InputError(BridgeError):
    """An argument or option has a value that is not allowed."""

    code = "INVALID_INPUT"


class FormatError(BridgeError):
    """Bytes that should be a GGUF file (or another container) are not, or contradict themselves."""

    code = "INVALID_FORMAT"


class SourceError(BridgeError):
    """Bytes could not be read: the network, a server's answer, a file that changed or ended too early."""

    code = "SOURCE_FAILED"


class UnsupportedError(BridgeError):
    """The input is valid but asks for something this engine does not have; the message names it."""

    code = "UNSUPPORTED"


class ModelError(BridgeError):
    """A model file lacks a tensor or key, or one has the wrong shape or type; the message names it."""

    code = "INVALID_MODEL"


class DeviceError(BridgeError):
    """The compute device is missing, was lost, ran out of memory or computes wrong results."""

    code = "DEVICE_FAILED"


class ContextOverflow(BridgeError):
    """A prompt (or a state) does not fit the context."""

    code = "CONTEXT_OVERFLOW"


class Cancelled(BridgeError):
    """The operation was cancelled by its caller."""

    code = "CANCELLED"
