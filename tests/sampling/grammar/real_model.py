"""Texts that a real model writes under a grammar, held to the matcher of ``reference`` and, where there is one, to a parser.

``python -m tests.sampling.grammar.real_model MODEL GRAMMAR.gbnf … --seeds 50`` does for many seeds what
``test_real_model`` does for a few.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from bridge.sampling.grammar import Grammar
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.sampling.grammar.reference import Reference

CUT_CHARACTER = "\ufffd"
"""What a text ends with that was cut off within a character."""
PROMPT = "Here is an example:\n"
DEEP = 1 << 20  # frames; the reference recurses once per character and rule
STACK_NBYTES = 1 << 29


class Written(NamedTuple):
    text: str
    is_finished: bool
    n_tokens: int


@asynccontextmanager
async def opened(path: Path, host: Any, n_ctx: int = 256):
    async def cpus():
        return host

    model = await load_model(str(path), LoadOptions(n_ctx=n_ctx, backend="simd"), cpus=cpus)
    try:
        yield model
    finally:
        await model.close()


async def written(model: Any, grammar: Grammar, seed: int, n_predict: int) -> Written:
    """What the model writes at temperature 1, over its whole vocabulary."""
    sampling = SamplingOptions(temp=1.0, top_k=0, top_p=1.0, penalty=1.0, seed=seed)
    prompt = model.tokenizer.encode(PROMPT)
    pieces = [piece async for piece in model.generate(prompt, GenerateOptions(n_predict, sampling, grammar=grammar))]
    return Written("".join(piece.text for piece in pieces), model.last_usage.finish_reason == "stop", len(pieces))


def fault_of(grammar: str, name: str, text: Written) -> str | None:
    """What is wrong with a text, or None."""
    whole = text.text if text.is_finished else text.text.rstrip(CUT_CHARACTER)
    accepted, can_go_on = deep(lambda: Reference(grammar).verdict(whole))
    if text.is_finished and not accepted:
        return "ended, and is not accepted"
    if not can_go_on:
        return "left the grammar"
    if text.is_finished and name.startswith("json"):
        try:
            json.loads(text.text)
        except ValueError as error:
            return f"is no JSON: {error}"
    return None


def deep(function: Callable[[], Any]) -> Any:
    """The result of a function that recurses deeply, on a thread with the room for it."""
    results: list[Any] = []
    before = threading.stack_size(STACK_NBYTES), sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    threading.stack_size(before[0])
    sys.setrecursionlimit(before[1])
    return results[0]


async def soak(path: Path, grammars: Sequence[Path], seeds: int, n_predict: int) -> int:
    """Number of faulty texts; a line for each grammar and each fault."""
    faults = 0
    host = WasmtimeHost(2)
    async with opened(path, host) as model:
        for file in grammars:
            source = file.read_text(encoding="utf-8")
            grammar = Grammar.for_tokenizer(source, model.tokenizer)
            started, texts = time.perf_counter(), []
            for seed in range(seeds):
                texts.append(await written(model, grammar, seed, n_predict))
            n_tokens = sum(text.n_tokens for text in texts)
            seconds = time.perf_counter() - started
            for seed, text in enumerate(texts):
                fault = fault_of(source, file.stem, text)
                if fault:
                    faults += 1
                    print(f"{file.name} seed {seed}: {fault}: {text.text!r}", flush=True)
            finished = sum(text.is_finished for text in texts)
            print(f"{file.name}: {seeds} texts, {finished} finished, {n_tokens} tokens, {1000 * seconds / n_tokens:.1f} ms each",
                  flush=True)
    host.close()
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("grammars", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("-n", "--n-predict", type=int, default=48)
    arguments = parser.parse_args()
    sys.exit(bool(asyncio.run(soak(arguments.model, arguments.grammars, arguments.seeds, arguments.n_predict))))


if __name__ == "__main__":
    main()
