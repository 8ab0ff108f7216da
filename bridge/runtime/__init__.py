"""One loaded model and its context: loading, evaluation, prefix reuse and generation, on any backend."""

from bridge.errors import Cancelled
from bridge.runtime.cancel import CancelToken
from bridge.runtime.generate import GenerateOptions, Piece, Usage
from bridge.runtime.load import LoadOptions, load_model
from bridge.runtime.model import Model

__all__ = ["CancelToken", "Cancelled", "GenerateOptions", "LoadOptions", "Model", "Piece", "Usage", "load_model"]
