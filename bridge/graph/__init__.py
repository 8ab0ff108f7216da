"""A model as a graph of few, mathematical operations: the vocabulary, the builder and a numpy interpreter."""

from bridge.graph.builder import GraphBuilder
from bridge.graph.graph import ALL, EMBEDDINGS, LOGITS, OUTPUTS, TOKENS, Graph, KvLayer, Node, Weight
from bridge.graph.rope import RopeTable

__all__ = ["ALL", "EMBEDDINGS", "LOGITS", "OUTPUTS", "TOKENS", "Graph", "GraphBuilder", "KvLayer", "Node", "RopeTable",
           "Weight"]
