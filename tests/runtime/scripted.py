"""A session small enough to read: its logits say what was asked of it, and it remembers every call."""

from __future__ import annotations

from array import array

from bridge.graph.cache import CacheLayout, CacheReach
from bridge.graph.graph import KvLayer
from bridge.graph.states import StateCopies


class ScriptedSession:
    """The next token is always (sum of the tokens in the cache) modulo the vocabulary's size."""

    name = "scripted"
    adapter = {"vendor": "none"}

    def __init__(self, n_vocab=16, n_ctx=32, n_ubatch=4, max_outputs=2):
        self.n_vocab, self.n_ctx, self.n_ubatch, self.max_outputs = n_vocab, n_ctx, n_ubatch, max_outputs
        self.notes = ["scripted_session"]
        self.content = [0] * n_ctx
        self.calls = []
        self.closed = 0
        self.fail = None
        self.states = StateCopies(is_recurrent=False)
        self.cache = CacheLayout([KvLayer(1, 0, 0)], n_ctx, n_ubatch, "f32", "f32")
        self.reach = CacheReach(self.cache.margin)

    def interrupt(self):
        pass

    def tokens_ahead(self, selection):
        return 1

    async def evaluate(self, tokens, start, outputs, selection=None):
        assert len(tokens) <= self.n_ubatch and len(outputs) <= self.max_outputs
        assert start + len(tokens) <= self.n_ctx
        self.calls.append((list(tokens), start, list(outputs)))
        if self.fail:
            raise self.fail
        self.content[start:start + len(tokens)] = tokens
        logits = array("f")
        for i in outputs:
            row = [0.0] * self.n_vocab
            row[sum(self.content[:start + i + 1]) % self.n_vocab] = 1.0
            logits.extend(row)
        return logits if outputs else None

    state_nbytes = 0

    async def read_kv(self, n_tokens):
        return array("i", self.content[:n_tokens]).tobytes()

    async def write_kv(self, data, n_tokens, earliest=0):
        self.content[:n_tokens] = array("i", bytes(data))

    async def close(self):
        self.closed += 1


class ByteTokenizer:
    """Token 1 ends; every other token is one byte of its own value, so that characters can be split between tokens."""

    begins_with_space = False
    eog_ids = frozenset([1])
    n_vocab = 256

    def plain_texts(self):
        return [None] * self.n_vocab

    def token_bytes(self, token, special=False):
        return bytes([token])
