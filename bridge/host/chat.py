"""Conversations as prompts: the documented plain format, and the model's own template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.errors import InputError
from bridge.host.engine import Engine
from bridge.runtime import Model
from bridge.tokenizer.chat_template import render_chat

JINJA = "jinja2"


async def render_with_template(model: Model, engine: Engine, messages: Any, options: Mapping[str, Any]) -> str:
    """The prompt for ``messages`` by the model's Jinja template, or by ``options["template"]``.

    ``addAssistant`` (default true) opens the assistant's turn; every other option is a variable of the template. Raises
    InputError without a template or messages, ChatTemplateError for what a template refuses.
    """
    variables = dict(options)
    template = variables.pop("template", None) or model.tokenizer.chat_template
    add_assistant = variables.pop("addAssistant", None)
    if not template:
        raise InputError("The loaded model has no chat template; pass one as the option template, or use applyChatTemplate.")
    if not isinstance(messages, list):
        raise InputError(f"messages is not iterable: a list of messages is needed, got {type(messages).__name__}")
    await engine.load_package(JINJA)
    special = {f"{name}_token": _token_text(model, name) for name in ("bos", "eos")}
    return render_chat(template, messages, add_generation_prompt=add_assistant is not False, **special, **variables)


def _token_text(model: Model, name: str) -> str:
    token = getattr(model.tokenizer, f"{name}_id")
    return "" if token is None else model.tokenizer.token_text(token)
