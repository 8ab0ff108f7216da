"""EmbeddingGemma: Gemma 3 as an encoder. Its windows reach in both directions, and it gives vectors instead of logits.

Source: Schechter Vera et al., arXiv 2509.20354.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.gemma3 import hidden_states
from bridge.models.hparams import HParams

CAUSAL = False
SYMMETRIC = True


def build(h: HParams, g: GraphBuilder) -> Graph:
    h.keys.integer("attention.sliding_window", low=0)
    return g.finish_encoder(g.rms_norm(hidden_states(h, g), "output_norm", h.rms_eps), h.n_vocab)
