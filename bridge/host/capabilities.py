"""What this build can do: answers to the capability probes, and the sentence for each call it cannot serve yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.errors import BridgeError, InputError, UnsupportedError

SPECULATIVE_STRATEGIES = ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark", "ngram-simple",
                          "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")

NOT_IN_THIS_BUILD = {
    "loadMultimodalProjector": "it has no multimodal projectors",
    "loadDraftModel": "it has no speculative decoding",
    "synthesizeSpeech": "it has no text-to-speech",
    "loadDecisionHead": "it has no decision heads",
    "runDecision": "it has no decision heads",
    "loadLoraAdapter": "it has no LoRA adapters",
    "setLoraAdapter": "it has no LoRA adapters",
    "removeLoraAdapter": "it has no LoRA adapters",
}

NOTHING_TO_RELEASE = ("unloadMultimodalProjector", "unloadDraftModel", "freeDecisionHead", "clearLoraAdapters")
"""Calls that free what this build never holds: they succeed."""

URL_NEEDED = {
    "loadMultimodalProjector": "Multimodal projector URL/path is empty.",
    "loadDraftModel": "Draft model URL is empty.",
}
"""What is said of calls whose first argument is an address, and empty."""

PROBES: dict[str, dict[str, Any]] = {
    "getTextToSpeechCapabilities": {
        "apiVersion": 1,
        "supported": False,
        "modelType": 0,
        "capabilities": 0,
        "supportsLanguage": False,
        "supportsSpeakerReference": False,
        "sampleRate": 0,
        "channels": 0,
        "reason": "This build has no text-to-speech.",
    },
    "getDecisionCapabilities": {"apiVersion": 1, "supported": False, "reason": "This build has no decision heads."},
    "getLoraAdapterCapabilities": {"apiVersion": 1, "supported": False, "reason": "This build has no LoRA adapters."},
}
BEFORE_A_LOAD = "WebGPU core is not initialized"
"""The documented reason for the lack of anything before the first model."""


def probe(method: str, is_loaded: bool) -> dict[str, Any]:
    """The answer of a capability probe that finds nothing in this build."""
    answer = PROBES[method]
    return {**answer, "reason": BEFORE_A_LOAD} if "reason" in answer and not is_loaded else answer


def refusal(method: str, args: Sequence[Any]) -> BridgeError:
    """What a call of ``NOT_IN_THIS_BUILD`` on a loaded model ends with."""
    if method in URL_NEEDED and not (args and isinstance(args[0], str) and args[0].strip()):
        return InputError(URL_NEEDED[method])
    return UnsupportedError(f"{method} is not available in this build: {NOT_IN_THIS_BUILD[method]}.")


def completion_capabilities(is_loaded: bool) -> dict[str, Any]:
    """Which options of a completion the engine applies; everything is false before a model is there."""
    return {
        "presencePenalty": is_loaded,
        "minP": is_loaded,
        "thinkingBudget": is_loaded,
        "speculativeDecoding": dict.fromkeys(SPECULATIVE_STRATEGIES, False),
    }
