"""Embeddings and ranks as a page asks for them: texts or lists of parts in, vectors out, documented codes for failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.errors import BridgeError, Cancelled, ContextOverflow, InputError
from bridge.models.pooling import NONE, RANK
from bridge.runtime import CancelToken, Model
from bridge.runtime.embeddings import check_length, embed_texts, normalised
from bridge.runtime.ranking import rank_documents

MEDIA_MARKER = "<__media__>"
MEDIA = ("image", "audio")


class EmbeddingError(BridgeError):
    """A failure of an embedding of parts; its ``code`` is one of the documented ones."""

    name = "EmbeddingError"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def embedding_capabilities(model: Model | None) -> dict[str, Any]:
    """The documented answer of ``getEmbeddingCapabilities``: texts, where the file's pooling gives a vector."""
    return {"apiVersion": 1, "text": model is not None and _is_pooled(model), "image": False, "audio": False}


async def vectors_for_page(model: Model, inputs: Sequence[Any], options: Mapping[str, Any],
                           cancel: CancelToken) -> list[list[float]]:
    """One vector for each input, a string or a list of parts; of length 1 unless ``normalize`` is false.

    All inputs are looked at before any is evaluated. Raises EmbeddingError for parts, and for strings what is wrong.
    """
    texts = [_joined_parts(item) if isinstance(item, list) else item for item in inputs]
    tokens = [_tokens(model, text, isinstance(item, list)) for text, item in zip(texts, inputs)]
    if not tokens:
        return []
    try:
        found = await embed_texts(model, tokens, cancel)
    except Cancelled:
        raise
    except BridgeError as error:
        raise _failure(error, any(isinstance(item, list) for item in inputs)) from error
    finish = list if options.get("normalize") is False else normalised
    return [list(finish(vector)) for vector in found]


async def ranks_for_page(model: Model, query: Any, documents: Any, cancel: CancelToken) -> list[dict[str, Any]]:
    """The answer of ``rank``: each document's ``score``, all ``labels`` and its ``promptTokens``, in order."""
    if not isinstance(query, str) or not isinstance(documents, list) or not all(isinstance(d, str) for d in documents):
        raise InputError("rank takes a query, a string, and documents, a list of strings")
    try:
        ranked = await rank_documents(model, query, documents, cancel)
    except Cancelled:
        raise
    except BridgeError as error:
        raise _with_prefix("Ranking failed", error) from error
    return [{"score": found.score, "labels": list(found.labels), "promptTokens": found.n_tokens} for found in ranked]


def _is_pooled(model: Model) -> bool:
    return model.embeddings is not None and model.embeddings.pooling not in (NONE, RANK)


def _joined_parts(parts: list[Any]) -> str:
    """The text of parts. The page has checked their shapes; another one that speaks the protocol may not have."""
    if not parts:
        raise EmbeddingError("Embedding parts are empty.", "INVALID_EMBEDDING_INPUT")
    texts = []
    for i, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in MEDIA:
            raise EmbeddingError(f"Embedding part {i} has the type {kind}, which needs a projector, and none is loaded.",
                                 "EMBEDDING_PROJECTOR_MISSING")
        if kind is not None and kind != "text":
            raise EmbeddingError(f"Embedding part {i} is none of text, image and audio.",
                                 "EMBEDDING_MODALITY_UNSUPPORTED")
        text = part.get("text") if kind else None
        if not isinstance(text, str) or MEDIA_MARKER in text:
            raise EmbeddingError(f"Embedding part {i} must have a text, without the reserved marker {MEDIA_MARKER}.",
                                 "INVALID_EMBEDDING_INPUT")
        texts.append(text)
    return "".join(texts)


def _tokens(model: Model, text: Any, is_parts: bool) -> list[int]:
    if is_parts and not _is_pooled(model):
        raise EmbeddingError("The model does not give one vector for a text: its file names no pooling, or it is a "
                             "reranker.", "MODEL_NOT_EMBEDDING")
    try:
        if not isinstance(text, str):
            raise InputError(f"the input must be a string or a list of parts, got {type(text).__name__}")
        tokens = model.tokenizer.encode(text, add_special=True, parse_special=True)
        check_length(model, tokens)
        return tokens
    except BridgeError as error:
        raise _failure(error, is_parts) from error


def _failure(error: BridgeError, is_parts: bool) -> BridgeError:
    if not is_parts:
        return _with_prefix("Embedding generation failed", error)
    codes = {ContextOverflow.code: "EMBEDDING_INPUT_TOO_LARGE", InputError.code: "INVALID_EMBEDDING_INPUT"}
    return EmbeddingError(f"Embedding failed: {error}", codes.get(error.code, "EMBEDDING_FAILED"))


def _with_prefix(words: str, error: BridgeError) -> BridgeError:
    failure = BridgeError(f"{words}: {error}")
    failure.code = error.code
    return failure
