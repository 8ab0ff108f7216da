"""Chat templates: a conversation as the text a model was trained on.

`render_chat` runs the Jinja template a file brings along, in the environment templates are written for: that of
Hugging Face transformers, and what llama.cpp's allows beyond it (lists that a template changes, JSON of what `map` and
`select` give). `plain_chat` is the format for files without one. Jinja is imported when first needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from bridge.errors import BridgeError, InputError
from bridge.tokenizer.js_text import js_text

if TYPE_CHECKING:
    import jinja2

_MAX_REASON = 200  # characters of an explanation that a template or the template engine gives


class ChatTemplateError(BridgeError):
    """A chat template is malformed, does something that is not allowed, or refuses the messages."""

    code = "CHAT_TEMPLATE_FAILED"


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    bos_token: str = "",
    eos_token: str = "",
    **extra: Any,
) -> str:
    """Text of `messages` (mappings with `role` and `content`) by a Jinja chat template.

    `extra` is what else the template gets: tools, documents, enable_thinking, ... Templates may change what they are
    given; they are given a copy. Raises ChatTemplateError.
    """
    try:
        return _compiled(template).render(
            **deepcopy({"messages": messages, **extra}),
            add_generation_prompt=add_generation_prompt,
            bos_token=bos_token,
            eos_token=eos_token,
        )
    except ChatTemplateError:
        raise
    except Exception as error:  # a template can fail in every way Python can
        raise ChatTemplateError(f"the chat template failed: {_reason(error)}") from error


def plain_chat(messages: Iterable[Any], add_assistant: bool) -> str:
    """`role: content` lines, then `assistant: ` if asked for: the format for models without a template.

    Values are written as JavaScript's String() does. The role is `user` where there is none, the content may be empty.
    """
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise InputError(f"messages is not iterable: a list of messages is needed, got {type(messages).__name__}")
    lines = []
    for message in messages:
        fields = message if isinstance(message, Mapping) else {}
        role, content = fields.get("role"), fields.get("content")
        lines.append(f"{'user' if role is None else js_text(role)}: {'' if content is None else js_text(content)}")
    if add_assistant:
        lines.append("assistant: ")
    return "\n".join(lines)


@lru_cache(maxsize=4)
def _compiled(template: str) -> jinja2.Template:
    environment = _environment()
    from jinja2 import TemplateSyntaxError

    try:
        return environment.from_string(template)
    except TemplateSyntaxError as error:
        raise ChatTemplateError(f"the chat template is malformed in line {error.lineno}: {_reason(error)}") from error


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import SandboxedEnvironment

    class GenerationTag(Extension):
        """`{% generation %}` marks what a model is trained to say; the text inside is rendered as it is."""

        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt, not for a web page: Jinja's own filter would escape < > & and quotes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys,
                      default=_listed)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _refuse(reason: str) -> NoReturn:
    raise ChatTemplateError(f"the chat template refuses these messages: {str(reason)[:_MAX_REASON]}")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:_MAX_REASON]}"
