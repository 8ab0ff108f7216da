"""A loaded model and its one context: what tokens the kv cache holds, and how more are evaluated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bridge.errors import Cancelled, ContextOverflow, DeviceError, InputError, UnsupportedError
from bridge.runtime.backend import Flight, Session
from bridge.runtime.cancel import CancelToken
from bridge.runtime.embeddings import Embeddings
from bridge.runtime.generate import GenerateOptions, Piece, Prefilled, Usage, generate
from bridge.sampling.selection import Selected, Selection


class Model:
    """Made by ``load_model``. Calls must not overlap: the caller runs one at a time and closes the model at the end.

    The tokens in the cache are remembered, so that a prompt with the same beginning as the last one (or as a restored
    state) is evaluated from the first difference on. What was generated does not count as such a beginning.
    """

    def __init__(self, session: Session, tokenizer: Any, *, metadata: Mapping[str, Any], architecture: str,
                 n_vocab: int, n_ctx_train: int, nbytes: int, fingerprint: bytes = bytes(32), kv_type: str = "f16",
                 has_logits: bool = True, embeddings: Embeddings | None = None) -> None:
        self._session = session
        self._tokens: list[int] = []
        self._n_reusable = 0
        self._closed = False
        self.tokenizer = tokenizer
        self.metadata = metadata
        self.architecture = architecture
        self.n_vocab = n_vocab
        self.n_ctx_train = n_ctx_train
        self.nbytes = nbytes
        self.fingerprint = fingerprint
        self.kv_type = kv_type
        self.has_logits = has_logits
        self.embeddings = embeddings
        self.last_usage = Usage()
        self.notes: list[str] = list(session.notes)

    @property
    def session(self) -> Session:
        """The backend's session, for measuring it."""
        return self._session

    @property
    def n_past(self) -> int:
        """Positions whose keys and values are in the cache."""
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens at those positions."""
        return self._tokens

    @property
    def state_nbytes(self) -> int:
        """Bytes of the recurrent state, 0 for most architectures."""
        return self._session.state_nbytes

    @property
    def earliest(self) -> int:
        """The first position that this context, once saved, can be continued from, but for 0."""
        return max(self._session.reach.earliest, self._session.cache.saved_earliest(self.n_past))

    def saved_nbytes(self, n_positions: int) -> int:
        """Bytes of ``read_cache`` for a context of so many positions."""
        return self._session.cache.saved_nbytes(n_positions) + self.state_nbytes if n_positions else 0

    @property
    def n_ctx(self) -> int:
        return self._session.n_ctx

    @property
    def max_outputs(self) -> int:
        """Most rows of logits or embeddings in one batch."""
        return self._session.max_outputs

    @property
    def n_ubatch(self) -> int:
        return self._session.n_ubatch

    @property
    def backend_name(self) -> str:
        return self._session.name

    @property
    def adapter(self) -> Mapping[str, str]:
        return self._session.adapter

    @property
    def compute(self) -> Mapping[str, Any]:
        """How the CPU backend computes (see SimdSession.compute); empty on other backends."""
        return getattr(self._session, "compute", {})

    def note(self, note: str) -> None:
        """Add a runtime note once."""
        if note not in self.notes:
            self.notes.append(note)

    def generate(self, prompt: Sequence[int], options: GenerateOptions | None = None,
                 cancel: CancelToken | None = None, on_prefill: Prefilled | None = None) -> AsyncIterator[Piece]:
        """Pieces of text that continue ``prompt`` (token ids); see bridge.runtime.generate."""
        return generate(self, prompt, options or GenerateOptions(), cancel or CancelToken(), on_prefill)

    async def evaluate(self, tokens: Sequence[int], outputs: str = "last", cancel: CancelToken | None = None) -> Any:
        """Logits of ``tokens`` from an empty context: float32 array [1, n_vocab] ("last") or [n, n_vocab] ("all")."""
        import numpy as np

        if outputs not in ("last", "all"):
            raise InputError(f"outputs is {outputs!r}; it must be 'last' or 'all'")
        self._check_prompt(tokens)
        self.forget()
        rows, cancel = [], cancel or CancelToken()
        step = min(self.n_ubatch, self._session.max_outputs) if outputs == "all" else self.n_ubatch
        for begin in range(0, len(tokens), step):
            cancel.check()
            batch = tokens[begin:begin + step]
            last = begin + len(batch) == len(tokens)
            wanted = range(len(batch)) if outputs == "all" else [len(batch) - 1] if last else []
            with self.interruptible(cancel):
                logits = await self._run(batch, wanted)
            if wanted:
                rows.append(np.array(logits, np.float32, copy=True).reshape(len(wanted), self.n_vocab))
        return np.concatenate(rows)

    async def prefill(self, prompt: Sequence[int], cancel: CancelToken, usage: Usage,
                      on_prefill: Prefilled | None = None, selection: Selection | None = None) -> Any:
        """Bring the context to exactly ``prompt`` and return the logits after its last token (None when cancelled).

        With a ``selection`` it may be the selected ones only (bridge.runtime.backend.Session.evaluate).
        """
        self._check_prompt(prompt)
        states, shared = self._session.states, self._common_prefix(prompt)
        keep_at = self._keep_position(prompt, shared) if states.is_recurrent else 0
        kept = self._session.reach.resume_position(states.resume_position(shared))
        usage.cached_prompt_tokens = kept
        del self._tokens[kept:]
        self._n_reusable = kept
        logits = None
        while self.n_past < len(prompt) and not cancel.cancelled:
            if self.n_past == keep_at:
                states.keep(keep_at)
            end = min(self.n_past + self.n_ubatch, keep_at if self.n_past < keep_at else len(prompt))
            batch = prompt[self.n_past:end]
            last = self.n_past + len(batch) == len(prompt)
            try:
                with self.interruptible(cancel):
                    logits = await self._run(batch, [len(batch) - 1], selection) if last else await self._run(batch, [])
            except Cancelled:
                return None
            self._n_reusable = self.n_past
            if on_prefill:
                on_prefill(self.n_past, len(prompt))
        return logits

    @contextmanager
    def interruptible(self, cancel: CancelToken) -> Iterator[None]:
        """Calls within may raise Cancelled before their batch is done, when ``cancel`` is cancelled meanwhile."""
        forget = cancel.on_cancel(self._session.interrupt)
        try:
            yield
        finally:
            forget()

    async def decode(self, token: int, selection: Selection | None = None) -> Any:
        """Append one generated token and return the logits after it, or the selected ones."""
        return await self._run([token], [0], selection)

    def tokens_ahead(self, selection: Selection) -> int:
        """How many tokens ``decode_ahead`` takes with such selections; 1 when it is of no use."""
        return self._session.tokens_ahead(selection)

    async def decode_ahead(self, token: int, n_before: int, selections: Sequence[Selection]) -> Flight:
        """Begin to evaluate a token ``n_before`` positions behind the context, and those that the device goes on with.

        None of them is in the context before ``advance`` says so.
        """
        return await self._trusted(self._session.decode_ahead(token, self.n_past + n_before, selections))

    async def land(self, flight: Flight) -> list[Selected]:
        """What the device has selected after each of the tokens of a flight, as far as it could."""
        return await self._trusted(flight.land())

    def advance(self, token: int) -> None:
        """Append a token that a flight has evaluated at this position."""
        self._tokens.append(token)

    def forget(self) -> None:
        """Start from an empty context."""
        self._tokens, self._n_reusable = [], 0

    async def read_cache(self) -> bytes:
        """The cache of all positions in use; see bridge.runtime.backend.Session.read_kv."""
        self._require_open()
        return await self._session.read_kv(self.n_past)

    async def restore(self, tokens: Sequence[int], n_reusable: int, cache: bytes, earliest: int = 0) -> None:
        """Replace the context: ``tokens`` and their ``cache``, of which prompts may reuse the first ``n_reusable``.

        ``earliest`` is that of the context that was saved.
        """
        self._require_open()
        self.forget()
        await self._session.write_kv(cache, len(tokens), earliest)
        self._tokens, self._n_reusable = list(tokens), n_reusable

    async def close(self) -> None:
        """Free the session's memory; may be called twice."""
        if not self._closed:
            self._closed = True
            self.forget()
            await self._session.close()

    async def run_embedding(self, batch: Sequence[int], outputs: Sequence[int], texts: Sequence[int] = ()) -> Any:
        """Append a batch and return its rows of embeddings; see bridge.runtime.embeddings for whole texts."""
        for i, token in enumerate(batch):
            self._check_token(i, token)
        return await self._append(batch, self._session.embed(batch, self.n_past, outputs, texts))

    async def _run(self, batch: Sequence[int], outputs: Sequence[int], selection: Selection | None = None) -> Any:
        return await self._append(batch, self._session.evaluate(batch, self.n_past, outputs, selection))

    async def _append(self, batch: Sequence[int], evaluation: Coroutine) -> Any:
        rows = await self._trusted(evaluation)
        self._tokens.extend(batch)
        return rows

    async def _trusted(self, evaluation: Coroutine) -> Any:
        try:
            self._require_open()
            return await evaluation
        except Cancelled:  # in the middle of a batch, all before it is there
            kept = self._session.reach.resume_position(self._session.states.resume_position(self.n_past))
            del self._tokens[kept:]
            self._n_reusable = min(self._n_reusable, kept)
            raise
        except BaseException:
            evaluation.close()
            self.forget()  # whatever the cache holds now, no prefix of it can be trusted
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceError("the model was closed while a call was using it")

    def _common_prefix(self, prompt: Sequence[int]) -> int:
        # At least one token is evaluated again: its logits are what generation starts from.
        limit = min(self._n_reusable, len(prompt) - 1)
        for i in range(limit):
            if self._tokens[i] != prompt[i]:
                return i
        return limit

    def _keep_position(self, prompt: Sequence[int], shared: int) -> int:
        """Where it pays to keep a recurrent state: before the last token, from where the same prompt or a longer one goes on.

        But where this prompt has left the last one late, others may leave it, too.
        """
        has_left = shared < min(self._n_reusable, len(prompt) - 1)
        return shared if has_left and 2 * shared >= len(prompt) else len(prompt) - 1

    def _check_prompt(self, prompt: Sequence[int]) -> None:
        if not self.has_logits:
            raise UnsupportedError(f"the model (architecture {self.architecture}) gives vectors for texts; it cannot predict "
                                   "tokens")
        if not len(prompt):
            raise InputError("the prompt is empty: it has no tokens to evaluate")
        if len(prompt) > self.n_ctx:
            raise ContextOverflow(f"the prompt has {len(prompt)} tokens, which exceeds the context size of "
                                  f"{self.n_ctx} tokens")
        for i, token in enumerate(prompt):
            self._check_token(i, token)

    def _check_token(self, i: int, token: int) -> None:
        if not isinstance(token, int) or not 0 <= token < self.n_vocab:
            raise InputError(f"prompt token {i} is {token!r}; it must be an integer from 0 to {self.n_vocab - 1}")
