"""The options of a page's calls as the engine's own: defaults, clamps, and notes on what this build does otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.errors import InputError, UnsupportedError
from bridge.host.js_numbers import finite, positive_integer
from bridge.host.token_events import TokenEventOptions
from bridge.runtime import GenerateOptions, LoadOptions
from bridge.runtime.load import MAX_THREADS
from bridge.sampling import SamplingOptions
from bridge.sampling.thinking_budget import ThinkingBudgetOptions

MIN_BATCH = 32
KV_TYPES = {1: "f16", 2: "q4_0", 8: "q8_0"}
"""Values of ``cacheTypeK`` and ``cacheTypeV``; anything else is 1."""

DEFAULT_N_PREDICT = 256
SAMPLING = {"temp": "temp", "topK": "top_k", "topP": "top_p", "penalty": "penalty"}
"""Options that are used when they are finite numbers and otherwise left at their defaults."""
MAX_N_PROBS = 100
NOT_APPLIED = ("speculativeDecoding",)


@dataclass(frozen=True)
class LoadRequest:
    """``gpu_layers``: layers asked for, None where the engine chooses. ``pool``: threads for the CPU to have at hand, None
    where the engine chooses; ``memory64``: whether its addresses have 64 bits, None where the model's size decides."""

    options: LoadOptions
    gpu_layers: int | None
    pool: int | None
    memory64: bool | None
    notes: list[str]


@dataclass(frozen=True)
class CompletionRequest:
    """``grammar``: its text, empty where there is none; it is read when the model is known."""

    generate: GenerateOptions
    grammar: str
    events: TokenEventOptions
    notes: list[str]


def load_request(options: Mapping[str, Any], config: Mapping[str, Any], n_ctx: int) -> LoadRequest:
    """The options of ``loadModelFromUrl``; ``n_ctx`` is used where they name none. Raises InputError."""
    notes: list[str] = []
    n_ctx = positive_integer(options.get("nCtx")) or n_ctx
    layers = finite(options.get("nGpuLayers"))
    if layers is None:
        layers = finite(config.get("nGpuLayers"))
    gpu_layers = int(layers) if layers is not None and layers >= 0 else None
    kv_type = _kv_type(options, notes)
    threads = positive_integer(options.get("nThreads")) or positive_integer(config.get("threads"))
    threads_batch = positive_integer(options.get("nThreadsBatch")) or positive_integer(config.get("threadsBatch"))
    loaded = LoadOptions(n_ctx=n_ctx, n_ubatch=_n_ubatch(options, config, n_ctx), kv_type=kv_type,
                         threads=_thread_count(threads), threads_batch=_thread_count(threads_batch),
                         backend="auto" if gpu_layers is None else "webgpu" if gpu_layers else "simd")
    return LoadRequest(loaded, gpu_layers, positive_integer(config.get("threadPoolSize")),
                       config.get("preferMemory64"), notes)


def _thread_count(wanted: int | None) -> int | None:
    """What an absurd number of threads is capped to before the pool caps it further."""
    return None if wanted is None else min(wanted, MAX_THREADS)


def _n_ubatch(options: Mapping[str, Any], config: Mapping[str, Any], n_ctx: int) -> int | None:
    """The micro-batch: at least 32, at most the batch, which is at most the context; None where nothing is asked for."""
    n_batch = positive_integer(options.get("nBatch")) or positive_integer(config.get("nBatch"))
    n_ubatch = positive_integer(options.get("nUbatch")) or positive_integer(config.get("nUbatch"))
    if n_ubatch is None:
        return None
    most = min(max(n_batch or n_ctx, MIN_BATCH), n_ctx)
    return min(max(n_ubatch, MIN_BATCH), most)


def _kv_type(options: Mapping[str, Any], notes: list[str]) -> str:
    k, v = (KV_TYPES.get(options.get(key), "f16") for key in ("cacheTypeK", "cacheTypeV"))
    if k == v == "f16":
        return "f16"
    flash_attention = finite(options.get("flashAttention"))
    if flash_attention == 0:
        raise InputError("Non-F16 KV cache requires flashAttention")
    if flash_attention != 1:
        notes.append("flash_attention:auto_enabled_for_kv_cache")
    return k if k == v else f"{k}/{v}"


def completion_request(options: Mapping[str, Any], direct: bool) -> CompletionRequest:
    """The options of ``createCompletion``; raises InputError, and UnsupportedError for what this build does not apply."""
    refused = [name for name in NOT_APPLIED if options.get(name)]
    if refused:
        names = " or ".join(f"CompletionOptions.{name}" for name in refused)
        raise UnsupportedError(f"This build does not support {names}.")
    if options.get("parts"):
        raise InputError("Multimodal input requires a loaded projector. Call loadMultimodalProjector first.")
    notes: list[str] = []
    sampling: dict[str, Any] = {"logit_bias": _logit_bias(options.get("logitBias"))}
    for key, name in SAMPLING.items():
        value = finite(options.get(key))
        if value is not None:
            sampling[name] = int(value) if name == "top_k" else value
        elif options.get(key) is not None:
            notes.append(f"completion_option_ignored:{key}")
    seed = finite(options.get("seed"))
    if seed is not None and seed == int(seed):
        sampling["seed"] = int(seed)
    sampling["min_p"] = options.get("minP") or 0.0
    sampling["presence_penalty"] = options.get("presencePenalty") or 0.0
    n_predict = positive_integer(options.get("nPredict")) or DEFAULT_N_PREDICT
    generate = GenerateOptions(n_predict, SamplingOptions(**sampling), stop=_stop_strings(options.get("stop")),
                               n_probs=min(positive_integer(options.get("nProbs")) or 0, MAX_N_PROBS),
                               thinking_budget=_thinking_budget(options.get("thinkingBudget")))
    return CompletionRequest(generate, _grammar(options.get("grammar")), TokenEventOptions.from_page(options, direct), notes)


def _grammar(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise InputError(f"CompletionOptions.grammar must be a text in GBNF, got {type(value).__name__}")


def _thinking_budget(value: Any) -> ThinkingBudgetOptions | None:
    """The page has checked the values and named the option that is wrong."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InputError("CompletionOptions.thinkingBudget must be an object")
    message = value.get("forcedMessage")
    return ThinkingBudgetOptions(value.get("maxTokens"), value.get("startTag"), value.get("endTag"),
                                 "" if message is None else message)


def _stop_strings(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InputError("CompletionOptions.stop must be a text or a list of texts, none of them empty")
    return tuple(stops)


def _logit_bias(value: Any) -> dict[int, float] | None:
    """JavaScript's objects have their keys as text."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InputError("CompletionOptions.logitBias must be an object of token ids and numbers")
    try:
        return {int(token): float(amount) for token, amount in value.items()}
    except (TypeError, ValueError):
        raise InputError("CompletionOptions.logitBias must be an object of token ids and numbers") from None
