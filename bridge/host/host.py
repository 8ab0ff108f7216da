"""The receiving end of the wire protocol: runs a bridge's calls and posts what comes of them."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from bridge.errors import BridgeError, Cancelled, DeviceError, InputError
from bridge.host import capabilities
from bridge.host.chat import chat_prompt, render_with_template
from bridge.host.completion import complete
from bridge.host.embedding import EmbeddingError, embedding_capabilities, ranks_for_page, vectors_for_page
from bridge.host.engine import Engine
from bridge.host.js_numbers import finite
from bridge.host.models import ModelSlot
from bridge.host.notes import RuntimeNotes
from bridge.host.options import CompletionRequest, completion_request
from bridge.host.scoring import scores_for_page
from bridge.host.snapshot import EMPTY_STATE, state_snapshot
from bridge.host.states import StateFiles, restored, state_bytes
from bridge.runtime import CancelToken, Usage

Message = dict[str, Any]

WITH_STATE = ("loadModelFromUrl", "createCompletion", "loadMultimodalProjector", "unloadMultimodalProjector",
              "synthesizeSpeech", "dispose")
"""Methods whose result carries the state snapshot; errors always do."""
CANCELLED_TEXT = {"loadModelFromUrl": "Model load was cancelled.", "createCompletion": "Generation was cancelled.",
                  "estimateMemory": "Memory estimate was cancelled."}


class Call:
    """One call under way: its id, the token that cancels it, and its events."""

    def __init__(self, id: int, method: str, post: Callable[[Message], None]) -> None:
        self.id, self.method = id, method
        self.cancel = CancelToken()
        self._post = post

    def post_event(self, event: str, payload: Mapping[str, Any]) -> None:
        self._post({"type": "event", "id": self.id, "event": event, "payload": payload})


class Host:
    """Answers the calls of one bridge. The page sends one at a time; ``cancel`` and ``setLogLevel`` come in between."""

    def __init__(self, post: Callable[[Message], None], engine: Engine, config: Mapping[str, Any] | None = None,
                 direct: bool = False) -> None:
        self._post, self._engine, self._direct = post, engine, direct
        self._notes = RuntimeNotes()
        self._notes.extend(engine.notes)
        self._use_template = (config or {}).get("useModelChatTemplate") is True
        self._slot = ModelSlot(engine, config or {}, self._notes)
        self._usage: Usage | None = None
        self._state_files = StateFiles()
        self._calls: dict[Call, asyncio.Task] = {}
        self._generating = False
        self._methods = self._method_table()

    def handle(self, message: Message) -> None:
        """Start a ``call``; its answer is posted when it is there. Other messages are ignored."""
        if message.get("type") != "call":
            return
        id, method, args = message.get("id") or 0, str(message.get("method")), message.get("args") or []
        if method == "cancel":
            self._cancel_calls()
            self._post({"type": "result", "id": id, "value": None})
            return
        call = Call(id, method, self._post)
        self._calls[call] = asyncio.ensure_future(self._run(call, args))

    def close(self) -> None:
        """Stop at once and let go of the device; nothing is posted any more."""
        self._post = lambda message: None
        for task in self._calls.values():
            task.cancel()
        self._engine.drop_device()
        self._engine.drop_cpu()

    async def _run(self, call: Call, args: list[Any]) -> None:
        try:
            self._post(await self._answer(call, args))
        finally:
            del self._calls[call]

    async def _answer(self, call: Call, args: list[Any]) -> Message:
        reply: Message
        try:
            run = self._methods.get(call.method)
            if run is None:
                raise InputError(f"The engine has no method {call.method[:40]!r}.")
            reply = {"type": "result", "id": call.id, "value": await run(call, *args)}
            if call.method not in WITH_STATE:
                return reply
        except Cancelled:
            text = CANCELLED_TEXT.get(call.method, f"{call.method} was cancelled.")
            reply = {"type": "error", "id": call.id, "message": text, "code": Cancelled.code}
        except BridgeError as error:
            self._slot.note_failure(error)
            reply = {"type": "error", "id": call.id, "message": str(error), "code": error.code}
            if isinstance(error, EmbeddingError):
                reply["name"] = error.name
        except Exception as error:
            traceback.print_exception(error)
            text = f"Internal error in {call.method}: {type(error).__name__}: {error}"
            reply = {"type": "error", "id": call.id, "message": text, "code": "INTERNAL_ERROR"}
        return {**reply, "state": self._state() if call.method != "dispose" else EMPTY_STATE}

    def _cancel_calls(self) -> None:
        for call in list(self._calls):
            call.cancel.cancel()

    def _state(self) -> dict[str, Any]:
        return state_snapshot(self._slot.loaded, self._notes, self._usage)

    def _method_table(self) -> dict[str, Callable[..., Any]]:
        return {
            **dict.fromkeys(capabilities.NOT_IN_THIS_BUILD, self._refuse),
            **dict.fromkeys(capabilities.NOTHING_TO_RELEASE, self._release_nothing),
            **dict.fromkeys(capabilities.PROBES, self._probe),
            "loadModelFromUrl": self._load_model,
            "estimateMemory": self._estimate_memory,
            "createCompletion": self._create_completion,
            "getCompletionCapabilities": self._completion_capabilities,
            "tokenize": self._tokenize,
            "detokenize": self._detokenize,
            "applyChatTemplate": self._apply_chat_template,
            "renderChatTemplate": self._render_chat_template,
            "getEmbeddingCapabilities": self._embedding_capabilities,
            "embed": self._embed,
            "embedBatch": self._embed_batch,
            "rank": self._rank,
            "scoreNextToken": self._score_next_token,
            "stateSaveFile": self._save_state_file,
            "stateLoadFile": self._load_state_file,
            "stateSaveBytes": self._save_state,
            "stateLoadBytes": self._load_state,
            "setLogLevel": self._set_log_level,
            "debugCounters": self._debug_counters,
            "dispose": self._dispose,
        }

    async def _refuse(self, call: Call, *args: Any) -> None:
        _ = self._slot.model  # without one, that is what is wrong
        raise capabilities.refusal(call.method, args)

    async def _release_nothing(self, call: Call, *args: Any) -> None:
        pass

    async def _probe(self, call: Call) -> dict[str, Any]:
        return capabilities.probe(call.method, self._slot.loaded is not None)

    async def _load_model(self, call: Call, source: Any = None, options: Any = None) -> int:
        if self._generating:
            raise InputError("Failed to release the loaded model: a generation is still active")
        self._usage = None

        def progress(counts: Mapping[str, int]) -> None:
            call.post_event("progress", counts)

        await self._slot.load(source, options or {}, progress, call.cancel)
        self._notes.extend(self._slot.model.notes)
        return 1

    async def _estimate_memory(self, call: Call, source: Any = None, options: Any = None) -> dict[str, Any]:
        return await self._slot.estimate(source, options or {}, call.cancel)

    async def _create_completion(self, call: Call, prompt: str = "", options: Any = None) -> str:
        if self._generating:
            raise InputError("Generation is already active on this bridge runtime")
        _ = self._slot.model
        request = completion_request(options or {}, self._direct)
        self._notes.extend(request.notes)
        self._generating = True
        try:
            return await self._complete(call, prompt, request)
        finally:
            self._generating = False
            if self._slot.loaded:
                self._usage = self._slot.model.last_usage
                self._notes.extend(self._slot.model.notes)

    async def _complete(self, call: Call, prompt: str, request: CompletionRequest) -> str:
        """A GPU that fails before the first token costs the time of a load: the CPU answers instead, once."""
        model = self._slot.model

        async def answer() -> str:
            return await complete(self._slot.model, self._engine, prompt, request, call.post_event, call.cancel)

        try:
            return await answer()
        except BridgeError as error:
            has_begun = model.last_usage.completion_tokens > 0 or call.cancel.cancelled
            if error.code != DeviceError.code or model.backend_name != "webgpu" or has_begun:
                raise
            self._slot.note_failure(error)
            try:
                await self._slot.move_to_cpu(lambda counts: call.post_event("recovery", counts), call.cancel)
            except Cancelled:
                raise
            except BridgeError:
                raise error from None
            return await answer()

    async def _completion_capabilities(self, call: Call) -> dict[str, Any]:
        return capabilities.completion_capabilities(self._slot.loaded is not None)

    async def _tokenize(self, call: Call, text: str = "", add_special: bool = True) -> list[int]:
        return self._slot.model.tokenizer.encode(text, add_special=add_special, parse_special=True)

    async def _detokenize(self, call: Call, tokens: Any = (), special: bool = False) -> str:
        tokenizer = self._slot.model.tokenizer
        try:
            return tokenizer.decode([_token_id(token) for token in tokens], special=special)
        except InputError as error:
            raise InputError(f"Detokenization failed: {error}") from error

    async def _apply_chat_template(self, call: Call, messages: Any = None, add_assistant: Any = True,
                                   custom_template: Any = None) -> str:
        model = self._slot.loaded.model if self._slot.loaded else None
        return await chat_prompt(model, self._engine, messages, bool(add_assistant), custom_template, self._use_template,
                                 self._notes)

    async def _render_chat_template(self, call: Call, messages: Any = None, options: Any = None) -> str:
        return await render_with_template(self._slot.model, self._engine, messages, options or {})

    async def _embedding_capabilities(self, call: Call) -> dict[str, Any]:
        return embedding_capabilities(self._slot.loaded.model if self._slot.loaded else None)

    async def _embed(self, call: Call, given: Any = None, options: Any = None) -> list[float]:
        [vector] = await vectors_for_page(self._slot.model, [given], options or {}, call.cancel)
        return vector

    async def _embed_batch(self, call: Call, given: Any = (), options: Any = None) -> list[list[float]]:
        return await vectors_for_page(self._slot.model, list(given), options or {}, call.cancel)

    async def _rank(self, call: Call, query: Any = None, documents: Any = None) -> list[dict[str, Any]]:
        return await ranks_for_page(self._slot.model, query, documents, call.cancel)

    async def _score_next_token(self, call: Call, prompt: Any = None, options: Any = None) -> dict[str, Any]:
        return await scores_for_page(self._slot.model, prompt, options or {}, call.cancel)

    async def _save_state_file(self, call: Call, path: Any = None, tokens: Any = ()) -> bool:
        return await self._state_files.save(self._slot.model, path, tokens)

    async def _load_state_file(self, call: Call, path: Any = None, capacity: Any = None) -> dict[str, Any]:
        return await self._state_files.load(self._slot.model, path, capacity)

    async def _save_state(self, call: Call, tokens: Any = ()) -> bytes:
        return await state_bytes(self._slot.model, tokens)

    async def _load_state(self, call: Call, data: Any = None, capacity: Any = None) -> dict[str, Any]:
        return await restored(self._slot.model, data, capacity)

    async def _set_log_level(self, call: Call, level: Any = None) -> None:
        """The engine prints nothing but tracebacks of its own mistakes, which no level hides."""

    async def _debug_counters(self, call: Call) -> dict[str, int]:
        return self._engine.counters()

    async def _dispose(self, call: Call) -> None:
        self._cancel_calls()
        others = [task for other, task in self._calls.items() if other is not call]
        if others:
            await asyncio.wait(others)
        await self._slot.release()
        self._engine.drop_device()
        self._engine.drop_cpu()
        self._state_files.clear()
        self._notes.clear()
        self._usage = None


def _token_id(value: Any) -> int:
    number = finite(value)
    if number is None:
        raise InputError(f"a token id is a number, got a value of type {type(value).__name__}")
    return int(number)
