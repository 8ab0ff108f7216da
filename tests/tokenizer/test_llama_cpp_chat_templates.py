"""The chat templates that llama.cpp keeps of well-known models (its models/templates), each with a few conversations.

A template must show what was said, in order, or refuse in its own words; what some of them ask for beyond the messages is
listed here.
"""

import json
import lzma

import pytest

from bridge.tokenizer.chat_template import ChatTemplateError, render_chat
from tests.tokenizer.packed import DATA

TEMPLATES = json.loads(lzma.decompress((DATA / "llama-cpp-chat-templates.json.xz").read_bytes()))

PARAMETERS = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "description": "Its name"},
    "unit": {"type": "string", "description": "Of the temperature", "enum": ["C", "F"]}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Tells it", "parameters": PARAMETERS}}]


def tool_turns(arguments):
    call = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return [
        {"role": "user", "content": "Is it warm there?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "twenty degrees"},
    ]


ONE_TURN = [{"role": "user", "content": "How are you?"}]
TURNS = [
    {"role": "system", "content": "Be very brief."},
    {"role": "user", "content": "How are you?"},
    {"role": "assistant", "content": "Fine, thanks."},
    {"role": "user", "content": "And why is that?"},
]
EXTRA = {"fireworks-ai-llama-3-firefunction-v2": {"functions": "[]", "datetime": "2026-01-01"}}
"""Variables without which a template does not work."""
ARGUMENTS_AS_TEXT = ("meetkai-functionary-medium-v3.2",)
WITHOUT_TOOL_CALLS = ("HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-cpp-rwkv-world",
                      "microsoft-Phi-3.5-mini-instruct")
"""Templates that know no tools; that of DeepSeek's distillation loses a call whose content is empty and not null."""
REFUSALS = {
    ("google-gemma-2-2b-it", "turns"): "System role not supported",
    ("google-gemma-2-2b-it", "tools"): "Conversation roles must alternate user/assistant/user/assistant/...",
}


def rendered(name, messages, **variables):
    return render_chat(TEMPLATES[name], messages, bos_token="<s>", eos_token="</s>", **EXTRA.get(name, {}), **variables)


def assert_in_order(text, parts):
    at = -1
    for part in parts:
        at = text.find(part, at + 1)
        assert at >= 0, f"{part!r} is missing in {text!r}"


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("opens", [True, False])
def test_conversations_come_out_whole_and_in_order(name, opens):
    one = rendered(name, ONE_TURN, add_generation_prompt=opens)
    assert_in_order(one, ["How are you?"])
    try:
        text = rendered(name, TURNS, add_generation_prompt=opens)
    except ChatTemplateError as error:
        assert str(error) == f"the chat template refuses these messages: {REFUSALS[name, 'turns']}"
        return
    assert (name, "turns") not in REFUSALS
    assert "Be very brief." in text, "some put it before the last turn instead of the first"
    assert_in_order(text, ["How are you?", "Fine, thanks.", "And why is that?"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_tool_calls_and_their_answers(name):
    turns = tool_turns('{"city": "Paris"}' if name in ARGUMENTS_AS_TEXT else {"city": "Paris"})
    try:
        text = rendered(name, turns, tools=TOOLS)
    except ChatTemplateError as error:
        assert str(error) == f"the chat template refuses these messages: {REFUSALS[name, 'tools']}"
        return
    shown = [] if name in WITHOUT_TOOL_CALLS else ["get_weather"]
    assert all(part in text for part in shown)
    assert_in_order(text, ["Is it warm there?"] + (["twenty degrees"] if shown else []))


def test_there_are_as_many_as_llama_cpp_has():
    assert len(TEMPLATES) == 70
