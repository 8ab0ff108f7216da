"""State calls over the host's messages."""

import asyncio

from tests.host.scripted_engine import Page
from tests.host.test_scoring import scripted_model


def on_page(scenario):
    async def opened():
        model = scripted_model()
        model._session.name = "reference"
        page = await Page(model).loaded()
        await page.call("createCompletion", "\x02\x03", {"nPredict": 2, "temp": 0})
        return await scenario(page)

    asyncio.run(opened())


def test_bytes_and_files_hold_the_same_state():
    async def scenario(page):
        saved = await page.call("stateSaveBytes", [2, 3])
        assert "state" not in saved
        data = saved["value"]
        assert (await page.call("stateSaveFile", " /a.state ", [2, 3]))["value"] is True
        await page.call("createCompletion", "\x09", {"nPredict": 1, "temp": 0})
        assert (await page.call("stateLoadBytes", memoryview(data), 32))["value"] == {"tokens": [2, 3]}
        assert (await page.call("stateLoadFile", "/a.state", 32))["value"] == {"tokens": [2, 3]}
        id = page.send("createCompletion", "\x02\x03\x04", {"nPredict": 1, "temp": 0})
        await page.answer(id)
        [usage] = [payload for event, payload in page.events(id) if event == "usage"]
        assert usage["cachedPromptTokens"] == 2

    on_page(scenario)


def test_refusals():
    async def scenario(page):
        data = (await page.call("stateSaveBytes", [2, 3]))["value"]
        for method, args, text, code in [
            ("stateSaveFile", ["  ", []], "State file path is empty.", "INVALID_INPUT"),
            ("stateLoadFile", [None, 8], "State file path is empty.", "INVALID_INPUT"),
            ("stateLoadFile", ["/b", 8], "State load failed: this runtime has no state file of that path.", "INVALID_INPUT"),
            ("stateLoadBytes", [b"", 8], "State bytes are empty.", "INVALID_INPUT"),
            ("stateLoadBytes", [data[:-1], 8], "State load failed: the state has ", "INVALID_FORMAT"),
            ("stateLoadBytes", [data, 1], "State load failed: the state records 2 tokens", "CONTEXT_OVERFLOW"),
            ("stateLoadBytes", [data, float("inf")], "State load failed: the token capacity is inf", "INVALID_INPUT"),
            ("stateSaveBytes", [["x"]], "State save failed: a token id is a number, got a value of type str", "INVALID_INPUT"),
            ("stateSaveBytes", [[2**40]], "State save failed: the recorded tokens must be 32-bit integers", "INVALID_INPUT"),
        ]:
            answer = await page.call(method, *args)
            assert answer["message"].startswith(text), answer["message"]
            assert answer["code"] == code

    on_page(scenario)


def test_state_files_are_of_one_runtime_and_end_with_it():
    async def scenario(page):
        await page.call("stateSaveFile", "/a", [])
        await page.call("dispose")
        page.engine.outcomes.append(scripted_model())
        page.engine.outcomes[0]._session.name = "reference"
        await page.loaded()
        assert "no state file" in (await page.call("stateLoadFile", "/a", 8))["message"]

    on_page(scenario)


def test_without_a_model():
    async def scenario():
        for method, *args in [("stateSaveBytes", []), ("stateLoadBytes", b"x", 8), ("stateSaveFile", "/a", [])]:
            assert "No model loaded" in (await Page().call(method, *args))["message"]

    asyncio.run(scenario())
