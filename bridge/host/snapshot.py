"""The state a page's synchronous getters answer from: metadata, context size, backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.graph.cache import QUANTISED, cache_types
from bridge.host.models import Loaded
from bridge.host.notes import RuntimeNotes
from bridge.runtime import Usage
from bridge.tokenizer.js_text import js_text

PREFIX = "llamadart.webgpu."
CACHE_TYPE_NUMBERS = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
"""As ggml counts its types."""
IDLE_BACKEND = "WASM (Prototype bridge)"
BACKEND_LABELS = {"webgpu": "WebGPU", "simd": "WASM SIMD", "reference": "WASM (reference)"}

EMPTY_STATE: dict[str, Any] = {
    "metadata": {},
    "contextSize": 0,
    "gpuActive": False,
    "backendName": IDLE_BACKEND,
    "supportsVision": False,
    "supportsAudio": False,
}


def state_snapshot(loaded: Loaded | None, notes: RuntimeNotes, usage: Usage | None) -> dict[str, Any]:
    """The six fields of the protocol; all metadata values are strings."""
    metadata = {PREFIX + key: js_text(value) for key, value in _engine_metadata(loaded, notes, usage).items()}
    if loaded is None:
        return {**EMPTY_STATE, "metadata": metadata}
    model = loaded.model
    return {
        "metadata": {**_model_metadata(model.metadata), **metadata},
        "contextSize": model.n_ctx,
        "gpuActive": model.backend_name == "webgpu",
        "backendName": BACKEND_LABELS[model.backend_name],
        "supportsVision": False,
        "supportsAudio": False,
    }


def _model_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The file's own single values; lists, such as the vocabulary, stay out."""
    return {key: js_text(value) for key, value in metadata.items() if isinstance(value, str | bool | int | float)}


def _engine_metadata(loaded: Loaded | None, notes: RuntimeNotes, usage: Usage | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "prototype": 1,
        "backends": "",
        "model_bytes": 0,
        "core_variant": "wasm32",
        "n_threads": 1,
        "n_threads_batch": 1,
        "n_gpu_layers": 0,
        "thread_pool_size": "",
        "mmproj_loaded": 0,
        "supports_vision": 0,
        "supports_audio": 0,
        "runtime_notes": notes.joined(),
    }
    if loaded is not None:
        values |= _loaded_metadata(loaded)
    if usage is not None:
        values |= _speeds(usage)
    return values


def _loaded_metadata(loaded: Loaded) -> dict[str, Any]:
    model = loaded.model
    architecture = model.metadata.get("general.architecture", "")
    k_type, v_type = cache_types(model.kv_type)
    return {
        "backends": BACKEND_LABELS[model.backend_name],
        "adapter": adapter_line(model.adapter),
        "model_bytes": model.nbytes or 1,
        "n_gpu_layers": model.metadata.get(f"{architecture}.block_count", 0) if model.backend_name == "webgpu" else 0,
        **_compute_metadata(model.compute),
        "n_batch": model.n_ubatch,
        "n_ubatch": model.n_ubatch,
        "n_seq_max": 1,
        "flash_attention": 1 if {k_type, v_type} & set(QUANTISED) else -1,
        "cache_type_k": CACHE_TYPE_NUMBERS[k_type],
        "cache_type_v": CACHE_TYPE_NUMBERS[v_type],
        "kv_unified": "",
        "split_mode": "",
        "main_gpu": "",
        "rope_freq_base": "",
        "rope_freq_scale": "",
        "model_source": loaded.facts["source"],
        "model_cache_state": loaded.facts["state"],
        "model_cache_name": loaded.facts["name"],
    }


def _compute_metadata(compute: Mapping[str, Any]) -> dict[str, Any]:
    """Threads and addresses of the CPU backend; elsewhere the defaults hold."""
    if not compute:
        return {}
    return {
        "core_variant": "wasm64" if "64" in compute["variant"] else "wasm32",
        "n_threads": compute["threads"],
        "n_threads_batch": compute["threads_batch"],
        "thread_pool_size": compute["thread_pool"],
    }


def _speeds(usage: Usage) -> dict[str, str]:
    """Of the last completion, where they can be told: tokens per second of the prompt and of the answer."""
    evaluated = usage.prompt_tokens - usage.cached_prompt_tokens
    speeds = {"prompt_tokens_per_second": (evaluated, usage.prompt_ms),
              "decode_tokens_per_second": (usage.completion_tokens, usage.decode_ms)}
    return {key: f"{1000 * tokens / ms:.2f}" for key, (tokens, ms) in speeds.items() if tokens and ms > 0}


def adapter_line(adapter: Mapping[str, str]) -> str:
    """The adapter as people know it: its description, else vendor and architecture."""
    words = [adapter.get(key, "") for key in ("vendor", "architecture", "device")]
    return adapter.get("description") or " ".join(word for word in words if word)
