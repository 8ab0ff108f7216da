"""Texts as vectors: what an embedding model says of them, or a reranker, or the hidden states of any other model."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from bridge.errors import ContextOverflow, InputError, UnsupportedError
from bridge.graph import EMBEDDINGS, Graph
from bridge.runtime.cancel import CancelToken
from bridge.sampling.sampler import float32_copy

if TYPE_CHECKING:
    from bridge.runtime.model import Model

BATCH_TOKENS = 256
"""Texts share a batch up to that many tokens: a batch is what a cancellation has to wait for."""


@dataclass(frozen=True)
class Embeddings:
    """What a model's vectors are: ``width`` numbers, by ``pooling``, of the row ``pooled_row`` (see bridge.graph.Graph).

    ``whole_texts``: a text must be evaluated in one batch, which may hold several.
    """

    width: int
    pooling: str
    pooled_row: str
    whole_texts: bool


def embeddings_of(graph: Graph) -> Embeddings | None:
    node = graph.results.get(EMBEDDINGS)
    return None if node is None else Embeddings(node.width, graph.pooling, graph.pooled_row, graph.reads_whole_texts)


async def embed_texts(model: Model, texts: Sequence[Sequence[int]], cancel: CancelToken | None = None) -> list[array]:
    """One vector (float32) for each text, given as token ids; without a pooling that of its last token.

    The context is empty afterwards. Raises UnsupportedError for a model without vectors, InputError for an empty text or
    one with ids outside the vocabulary, ContextOverflow for one that is too long, and Cancelled.
    """
    found, cancel = _facts(model), cancel or CancelToken()
    for tokens in texts:
        check_length(model, tokens)
    vectors: list[array] = []
    try:
        if not found.whole_texts:
            return [await _embed_alone(model, tokens, found, cancel) for tokens in texts]
        for group in _groups(texts, min(BATCH_TOKENS, model.n_ubatch), model.max_outputs):
            cancel.check()
            with model.interruptible(cancel):
                vectors += await _embed_together(model, group, found)
        return vectors
    finally:
        model.forget()


async def embed_tokens(model: Model, tokens: Sequence[int], cancel: CancelToken | None = None) -> list[array]:
    """A vector for every token of a text, of a model loaded without pooling; raises what ``embed_texts`` does."""
    found, cancel = _facts(model), cancel or CancelToken()
    if found.pooling != "none":
        raise UnsupportedError(f"the model has one vector for a text (pooling {found.pooling}), none for each token")
    check_length(model, tokens)
    model.forget()
    step = model.n_ubatch if found.whole_texts else min(model.n_ubatch, model.max_outputs)
    vectors: list[array] = []
    try:
        for begin in range(0, len(tokens), step):
            cancel.check()
            batch = tokens[begin:begin + step]
            with model.interruptible(cancel):
                vectors += _rows(await model.run_embedding(batch, range(len(batch))), found.width)
        return vectors
    finally:
        model.forget()


def normalised(vector: Sequence[float]) -> array:
    """The vector at length 1; components that are no finite numbers count as 0, and a vector of zeros stays one."""
    finite = array("d", (value if math.isfinite(value) else 0.0 for value in vector))
    length = math.sqrt(math.fsum(value * value for value in finite))
    return array("f", (value / length for value in finite)) if length else array("f", finite)


def longest_text(model: Model) -> int:
    """The most tokens that a text may have."""
    return model.n_ubatch if _facts(model).whole_texts else model.n_ctx


def check_length(model: Model, tokens: Sequence[int]) -> None:
    """Raise InputError for an empty text and ContextOverflow for one that is too long."""
    most = longest_text(model)
    if not len(tokens):
        raise InputError("the text is empty: it has no tokens to embed")
    if len(tokens) > most:
        raise ContextOverflow(f"the text has {len(tokens)} tokens, which exceeds the {most} that this model takes at once")


def _facts(model: Model) -> Embeddings:
    if model.embeddings is None:
        raise UnsupportedError(f"the architecture {model.architecture} gives no embeddings")
    return model.embeddings


def _groups(texts: Sequence[Sequence[int]], most_tokens: int, most_texts: int) -> Iterator[list[Sequence[int]]]:
    """Neighbouring texts that fit a batch together; one that is longer than ``most_tokens`` has its own."""
    group: list[Sequence[int]] = []
    n_tokens = 0
    for tokens in texts:
        if group and (n_tokens + len(tokens) > most_tokens or len(group) == most_texts):
            yield group
            group, n_tokens = [], 0
        group.append(tokens)
        n_tokens += len(tokens)
    if group:
        yield group


async def _embed_together(model: Model, group: Sequence[Sequence[int]], found: Embeddings) -> list[array]:
    tokens = [token for text in group for token in text]
    lengths = [len(text) for text in group]
    wanted = [end - n if found.pooled_row == "cls" else end - 1 for end, n in zip(accumulate(lengths), lengths)]
    model.forget()
    return _rows(await model.run_embedding(tokens, wanted, lengths), found.width)


async def _embed_alone(model: Model, tokens: Sequence[int], found: Embeddings, cancel: CancelToken) -> array:
    """Batch after batch: the row of the first or of the last one, or the mean of theirs."""
    model.forget()
    total = array("d", bytes(8 * found.width))
    for begin in range(0, len(tokens), model.n_ubatch):
        cancel.check()
        batch = tokens[begin:begin + model.n_ubatch]
        is_last = begin + len(batch) == len(tokens)
        is_wanted = {"mean": True, "cls": begin == 0}.get(found.pooled_row, is_last)
        row = 0 if found.pooled_row == "cls" else len(batch) - 1
        with model.interruptible(cancel):
            values = await model.run_embedding(batch, [row] if is_wanted else [])
        if is_wanted:
            share = len(batch) / len(tokens) if found.pooled_row == "mean" else 1.0
            total = array("d", (sum_ + share * value for sum_, value in zip(total, _rows(values, found.width)[0])))
        if found.pooled_row == "cls":
            break
    return array("f", total)


def _rows(values: Any, width: int) -> list[array]:
    flat = float32_copy(values)
    return [flat[i:i + width] for i in range(0, len(flat), width)]
