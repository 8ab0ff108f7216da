"""Conversations as prompts: the documented plain format, and the model's own template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.errors import InputError, SourceError
from bridge.host.engine import Engine
from bridge.host.notes import RuntimeNotes
from bridge.runtime import Model
from bridge.tokenizer.chat_template import ChatTemplateError, plain_chat, render_chat

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


async def chat_prompt(model: Model | None, engine: Engine, messages: Any, add_assistant: bool, custom: Any,
                      use_model_template: bool, notes: RuntimeNotes) -> str:
    """``applyChatTemplate``: the plain format, unless a template was asked for (by the call or the config) and works.

    Without a model there are no special tokens to render with: then the format is plain.
    """
    template = custom if isinstance(custom, str) and custom.strip() else None
    if model is not None and (template or (use_model_template and model.tokenizer.chat_template)):
        try:
            return await render_with_template(model, engine, messages, {"template": template, "addAssistant": add_assistant})
        except (ChatTemplateError, SourceError) as error:
            notes.add("chat_template_failed", error)
    return plain_chat(messages, add_assistant)


def _token_text(model: Model, name: str) -> str:
    token = getattr(model.tokenizer, f"{name}_id")
    return "" if token is None else model.tokenizer.token_text(token)
