"""Reranking: how well documents answer a query, in the eyes of a model with a classifier head."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.errors import UnsupportedError
from bridge.runtime.cancel import CancelToken
from bridge.runtime.embeddings import embed_texts

if TYPE_CHECKING:
    from bridge.runtime.model import Model

TEMPLATE_KEY = "tokenizer.chat_template.rerank"


@dataclass(frozen=True)
class Ranked:
    """``labels``: all outputs of the head for one document, of which the first is the ``score``."""

    score: float
    labels: tuple[float, ...]
    n_tokens: int


async def rank_documents(model: Model, query: str, documents: Sequence[str],
                         cancel: CancelToken | None = None) -> list[Ranked]:
    """A score for each document, in their order.

    Raises UnsupportedError for a model that is no reranker, ContextOverflow for a pair that is too long, and Cancelled.
    """
    if model.embeddings is None or model.embeddings.pooling != "rank":
        raise UnsupportedError("the model is no reranker: its file does not ask for the pooling 'rank'")
    pairs = [pair_tokens(model, query, document) for document in documents]
    vectors = await embed_texts(model, pairs, cancel)
    return [Ranked(labels[0], tuple(labels), len(pair)) for labels, pair in zip(vectors, pairs)]


def pair_tokens(model: Model, query: str, document: str) -> list[int]:
    """A query and a document as one text, as llama.cpp's server puts them together.

    With the file's template for it, if there is one; else with the special tokens that the vocabulary adds.
    """
    tokenizer: Any = model.tokenizer
    template = model.metadata.get(TEMPLATE_KEY)
    if isinstance(template, str):
        text = re.sub(r"\{(query|document)\}", lambda found: {"query": query, "document": document}[found[1]], template)
        return tokenizer.encode(text, add_special=False, parse_special=True)
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    eos_id = tokenizer.sep_id if tokenizer.eos_id is None else tokenizer.eos_id
    end = [eos_id] if tokenizer.add_eos and eos_id is not None else []
    between = [tokenizer.sep_id] if tokenizer.add_sep and tokenizer.sep_id is not None else []
    parts = (tokenizer.encode(text, add_special=False, parse_special=False) for text in (query, document))
    return [*begin, *next(parts), *end, *between, *next(parts), *end]
