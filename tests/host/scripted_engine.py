"""An engine without a device or a network: models that say what a test wrote down, and a host driven by messages."""

from __future__ import annotations

import asyncio

from bridge.errors import Cancelled, SourceError
from bridge.host.host import Host
from bridge.runtime import Piece, Usage


class ScriptedTokenizer:
    """A token for each character; ids are code points."""

    chat_template = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ extra }}"
    bos_id, eos_id = 60, None

    def encode(self, text, add_special=True, parse_special=True):
        return [1] * add_special + [ord(character) for character in text]

    def decode(self, ids, special=False):
        return "".join(map(chr, ids))

    def token_text(self, token):
        return chr(token)


class ScriptedModel:
    """Says ``pieces``: a string is said, a pair is a string and what is held back behind it, a number is a pause in
    seconds, an exception is raised."""

    def __init__(self, pieces=("Hello", "", " world"), n_ctx=64, metadata=None, backend_name="webgpu"):
        self.pieces, self.n_ctx, self.n_ubatch = pieces, n_ctx, 32
        self.metadata = metadata or {"general.architecture": "llama", "llama.block_count": 2}
        self.tokenizer = ScriptedTokenizer()
        self.backend_name, self.adapter, self.nbytes = backend_name, {"vendor": "acme", "architecture": "v1"}, 100
        self.compute = {}
        self.has_logits, self.embeddings, self.architecture = True, None, "llama"
        self.kv_type = "f16"
        self.notes = ["scripted"]
        self.last_usage = Usage()
        self.prompts, self.options = [], []
        self.closed = 0

    async def generate(self, prompt, options, cancel, on_prefill):
        usage = self.last_usage = Usage(prompt_tokens=len(prompt), cached_prompt_tokens=1, finish_reason="stop",
                                        prompt_ms=10.0, decode_ms=20.0, duration_ms=30.0)
        self.prompts.append(prompt)
        self.options.append(options)
        for end in range(self.n_ubatch, len(prompt) + self.n_ubatch, self.n_ubatch):
            on_prefill(min(end, len(prompt)), len(prompt))
        for piece in self.pieces:
            if cancel.cancelled:
                usage.finish_reason = "cancelled"
                return
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
                continue
            piece, pending = piece if isinstance(piece, tuple) else (piece, "")
            usage.completion_tokens += 1
            if piece and usage.time_to_first_token_ms is None:
                usage.time_to_first_token_ms = 12.0
            yield Piece(5, piece, pending)

    async def close(self):
        self.closed += 1


class ScriptedSource:
    size, received = 100, 0

    def __init__(self, n_files=1, from_cache=False):
        self.closed = self.committed = self.discarded = 0
        self.shards = tuple(100 // n_files + (i < 100 % n_files) for i in range(n_files)) if n_files > 1 else ()
        self.facts = {"source": "cache" if from_cache else "network", "state": "hit" if from_cache else "stored",
                      "name": "models", "notes": ["model_cache_hit"] if from_cache else ["model_network_stream"],
                      "anyFromCache": from_cache}

    async def commit(self):
        self.committed += 1

    async def discard(self):
        self.discarded += 1

    def close(self):
        self.closed += 1


class ScriptedEngine:
    """``outcomes`` are what the next loads give: a model, or the exception to raise while loading."""

    notes = ["boot:plain"]

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.urls, self.load_options, self.packages = [], [], []
        self.source_options, self.cached = [], False
        self.sources = []
        self.devices_dropped = self.cpus_dropped = 0
        self.load_pause = 0.0
        self.missing = None

    async def open_source(self, urls, options, cancel):
        self.urls.append(urls[0] if len(urls) == 1 else urls)
        self.source_options.append(options)
        if self.missing:
            raise SourceError(self.missing)
        self.sources.append(ScriptedSource(len(urls), self.cached and not options.get("force")))
        return self.sources[-1]

    async def load_model(self, source, options, *, devices, cpus, progress, cancel):
        self.load_options.append(options)
        for loaded in (10, 10, 50, 100):
            progress(loaded, 100)
        if self.load_pause:
            for percent in range(100):
                source.received = percent
                await asyncio.sleep(self.load_pause / 100)
                cancel.check()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def device(self):
        return None

    def drop_device(self):
        self.devices_dropped += 1

    async def cpu(self, pool, memory64):
        return None

    def drop_cpu(self):
        self.cpus_dropped += 1

    async def load_package(self, name):
        self.packages.append(name)

    def counters(self):
        return {"jsReferences": 0}


class Page:
    """The page's end of a host: sends calls and keeps what was posted."""

    def __init__(self, *outcomes, config=None, direct=False):
        self.engine = ScriptedEngine(*outcomes)
        self.posted = []
        self.host = Host(self.posted.append, self.engine, config, direct)
        self._id = 0

    def send(self, method, *args):
        self._id += 1
        self.host.handle({"type": "call", "id": self._id, "method": method, "args": list(args)})
        return self._id

    async def answer(self, id):
        """The result or error of a call, once it is there."""
        async with asyncio.timeout(5):
            while True:
                for message in self.posted:
                    if message["id"] == id and message["type"] != "event":
                        return message
                await asyncio.sleep(0.001)

    async def call(self, method, *args):
        return await self.answer(self.send(method, *args))

    def events(self, id=None):
        return [(m["event"], m["payload"]) for m in self.posted if m["type"] == "event" and id in (None, m["id"])]

    async def loaded(self):
        """The same page with its first model loaded."""
        answer = await self.call("loadModelFromUrl", "https://e.test/m.gguf", {})
        assert answer["type"] == "result", answer
        return self


CANCELLED = Cancelled("the operation was cancelled")
