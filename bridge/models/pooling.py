"""From a model's hidden states to one vector for a text: pooling, and what follows it in embedding models and rerankers.

``none``: the last hidden state of each token that is asked for; ``mean`` of all tokens; ``cls`` and ``last``: that of the
first and of the last token, which whoever evaluates asks for; ``rank``: a classifier's labels for the text. The rules are
llama.cpp's (``build_pooling``, ``build_dense_out``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from bridge.errors import ModelError
from bridge.graph import EMBEDDINGS, Graph, GraphBuilder, Node
from bridge.models.hparams import HParams

POOLINGS = ("none", "mean", "cls", "last", "rank")
"""In the order of their numbers in files."""
NONE, MEAN, CLS, LAST, RANK = POOLINGS


def build_pooled(module: ModuleType, h: HParams, tensors: Mapping[str, Any], pooling: str | None) -> Graph:
    """The graph of an architecture's module with embeddings as the file, or ``pooling``, has them.

    A module may set CAUSAL, SYMMETRIC (windows reach in both directions) and RANK_POOLING (of its rerankers).
    """
    pooling = pooling or named_pooling(h, "pooling_type", NONE)
    causal = getattr(module, "CAUSAL", h.causal)
    rank_pooling = named_pooling(h, "classifier.pooling_type", getattr(module, "RANK_POOLING", LAST if causal else CLS))
    pooled_row = rank_pooling if pooling == RANK else pooling
    g = GraphBuilder(tensors, causal=causal, symmetric=getattr(module, "SYMMETRIC", False), keep_rows=pooled_row == MEAN)
    graph = module.build(h, g)
    if graph.reads_whole_texts:  # whose texts each take a batch, for which the memory is there from the beginning
        graph = replace(graph, n_positions=min(h.n_ctx_train, graph.n_positions or h.n_ctx_train))
    hidden = graph.results.get(EMBEDDINGS)
    if hidden is None:
        return graph
    x = g.text_mean(hidden) if pooled_row == MEAN else g.selected(hidden)
    if pooling == RANK:
        x = classifier(g, h, x)
    return g.with_embeddings(graph, dense(g, h, x), pooling, pooled_row)


def named_pooling(h: HParams, key: str, default: str) -> str:
    number = h.keys.integer(key, POOLINGS.index(default), low=-1)
    if number >= len(POOLINGS):
        names = ", ".join(f"{i} ({name})" for i, name in enumerate(POOLINGS))
        raise ModelError(f"metadata key {h.architecture}.{key} is {number}; it must be one of {names}")
    return POOLINGS[number] if number >= 0 else default


def classifier(g: GraphBuilder, h: HParams, x: Node) -> Node:
    """The scores of a reranker's labels, one where the file names none: ``cls`` with its activation, then ``cls.output``."""
    if not g.has("cls.weight") and not g.has("cls.output.weight"):
        raise ModelError("the file is a reranker, but has neither a tensor cls.weight nor cls.output.weight")
    if g.has("cls.weight"):
        width = 1 if h.architecture == "jina-bert-v2" else h.n_embd
        x = g.activate(g.matmul(x, "cls", width), "gelu" if h.architecture == "modern-bert" else "tanh")
        if g.has("cls.norm.weight"):
            x = g.layer_norm(x, "cls.norm", h.norm_eps)
    if g.has("cls.output.weight"):
        x = g.matmul(x, "cls.output", h.keys.count("classifier.output_labels") or 1)
    return g.softmax(x) if h.architecture in ("qwen3", "qwen3vl") else x


def dense(g: GraphBuilder, h: HParams, x: Node) -> Node:
    """The linear layers that sentence-transformers puts behind the pooling."""
    if g.has("dense_2.weight"):
        x = g.matmul(x, "dense_2", h.keys.integer("dense_2_feat_out"))
    if g.has("dense_3.weight"):
        x = g.matmul(x, "dense_3", h.keys.integer("dense_3_feat_out", h.n_embd))
    return x
