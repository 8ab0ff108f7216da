"""Chat templates as Jinja and transformers render them, and the plain format as the page contract states it."""

import json
from datetime import datetime

import pytest

from bridge.errors import BridgeError, InputError
from bridge.tokenizer.chat_template import ChatTemplateError, plain_chat, render_chat
from bridge.tokenizer.js_text import js_number, js_text
from tests.tokenizer.packed import DATA

SMOLLM2 = json.loads((DATA / "chat-templates.json").read_text(encoding="utf-8"))
HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("case", SMOLLM2["cases"])
def test_smollm2_conversations(case):
    rendered = render_chat(SMOLLM2["template"], case["messages"], add_generation_prompt=case["add_generation_prompt"])
    assert rendered == case["jinja2"]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hi</s>"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "Hi"}]'),
        ("{{ {'a': '<é & \\'>'} | tojson }}", '{"a": "<é & \'>"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}\n", "user\n"),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
        ("{{ undefined_thing }}{{ messages[0].missing }}", ""),
        ("{{ messages[0].content.strip().upper() }}{{ messages[0]['content'][0] }}", "HIH"),
        ("{{ tools[0].name }}{{ enable_thinking }}", "fFalse"),
    ],
)
def test_rendering(template, expected):
    extra = {"tools": [{"name": "f"}], "enable_thinking": False}
    assert render_chat(template, HI, bos_token="<s>", eos_token="</s>", **extra) == expected


def test_a_template_may_change_its_own_copy():
    messages = [{"role": "user", "content": "Hi"}]
    template = "{% set _ = messages.append(messages[0]) %}{{ messages | length }} {{ messages | map(attribute='role') | tojson }}"
    assert render_chat(template, messages) == '2 ["user", "user"]'
    assert messages == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a\n{% if %}", "the chat template is malformed in line 2: TemplateSyntaxError"),
        ("{{ raise_exception('Roles must alternate') }}", "the chat template refuses these messages: Roles must alternate"),
        ("{{ messages[0].content + 1 }}", "the chat template failed: TypeError"),
        ("{{ 1 / 0 }}", "the chat template failed: ZeroDivisionError"),
        ("{{ missing.field }}", "the chat template failed: UndefinedError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "the chat template failed: SecurityError"),
        ("{{ messages.__init__() }}", "the chat template failed: SecurityError"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "the chat template failed: OverflowError"),
        ("{% include 'x' %}", "the chat template failed: TypeError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "the chat template failed: RecursionError"),
    ],
)
def test_templates_that_fail(template, message):
    with pytest.raises(ChatTemplateError) as caught:
        render_chat(template, HI)
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, BridgeError) and caught.value.code == "CHAT_TEMPLATE_FAILED"


@pytest.mark.parametrize(
    ("messages", "add_assistant", "expected"),
    [
        ([{"role": "user", "content": "hi"}], True, "user: hi\nassistant: "),
        ([{"role": "user", "content": "again"}], False, "user: again"),
        (
            [
                {"role": "system", "content": "S"},
                {"role": "user", "content": "U"},
                {"role": "assistant", "content": "A"},
                {"role": "user", "content": "V"},
            ],
            True,
            "system: S\nuser: U\nassistant: A\nuser: V\nassistant: ",
        ),
        ([{"role": "tool", "content": "42"}], True, "tool: 42\nassistant: "),
        ([{"content": "x"}], False, "user: x"),
        ([{"role": "", "content": "x"}], False, ": x"),
        ([{"role": "user", "content": None}], False, "user: "),
        ([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], False, "user: [object Object]"),
        ([{"role": "user", "content": ["a", "b"]}], False, "user: a,b"),
        ([{"role": "user", "content": 7}], False, "user: 7"),
        ([None], False, "user: "),
        ([], True, "assistant: "),
        ([], False, ""),
        ([{"role": "user", "content": "a\nb"}], False, "user: a\nb"),
    ],
)
def test_plain_format(messages, add_assistant, expected):
    assert plain_chat(messages, add_assistant) == expected


@pytest.mark.parametrize("messages", [None, 7, True, {"role": "user"}])
def test_plain_format_needs_a_list(messages):
    with pytest.raises(InputError, match="messages is not iterable"):
        plain_chat(messages, True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ("", ""),
        (-3, "-3"),
        (2**70, "1180591620717411303424"),
        ([None, [1, [2.5]], {"a": 1}, "x"], ",1,2.5,[object Object],x"),
        ([], ""),
        ({}, "[object Object]"),
    ],
)
def test_values_as_javascript_writes_them(value, text):
    assert js_text(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7.0, "7"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.25e25, "1.25e+25"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (5e-324, "5e-324"),
        (12345.678, "12345.678"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_numbers_as_javascript_writes_them(number, text):
    assert js_number(number) == text
