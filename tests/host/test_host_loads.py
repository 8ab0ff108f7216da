"""Loading through the host: progress, what is freed and kept, failures, files that change, cancellation."""

import asyncio

import pytest

from bridge.errors import DeviceError, FormatError, SourceError
from tests.host.answers import metadata, notes, run
from tests.host.scripted_engine import Page, ScriptedModel


def test_a_load_reports_percentages_that_grow_and_closes_its_source():
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        assert page.events(1) == [("progress", {"loaded": n, "total": 100}) for n in (10, 50, 100)]
        assert page.engine.sources[0].closed == 1
        assert page.engine.load_options[0].n_ctx == 4096

    run(scenario())


def test_bytes_that_arrive_before_any_weight_count_as_progress(monkeypatch):
    monkeypatch.setattr("bridge.host.models.PROGRESS_S", 0.01)

    async def scenario():
        page = Page(ScriptedModel())
        page.engine.load_pause = 0.1

        async def read_header_only(source, options, *, progress, cancel, **more):
            for received in (5, 5, 40):
                source.received = received
                await asyncio.sleep(0.03)
            return page.engine.outcomes.pop(0)

        page.engine.load_model = read_header_only
        await page.loaded()
        assert [payload["loaded"] for _, payload in page.events(1)] == [5, 40]
        before = len(page.posted)
        await asyncio.sleep(0.03)
        assert len(page.posted) == before

    run(scenario())


def test_a_new_load_frees_the_old_model_first_and_keeps_its_context_size_as_the_default():
    async def scenario():
        first, second = ScriptedModel(n_ctx=64), ScriptedModel(n_ctx=64)
        page = await Page(first, second).loaded()
        answer = await page.call("loadModelFromUrl", "https://e.test/n.gguf", {})
        assert (first.closed, second.closed) == (1, 0)
        assert page.engine.load_options[1].n_ctx == 64
        assert "previous_model_released" in notes(answer)

    run(scenario())


@pytest.mark.parametrize("failure, text", [
    (FormatError("not a GGUF file: it begins with 3c68746d"),
     "Failed to load GGUF model: not a GGUF file: it begins with 3c68746d"),
    (SourceError("Failed to fetch model shard: network error"), "Failed to fetch model shard: network error"),
])
def test_a_failed_load_leaves_no_model_and_the_next_one_works(failure, text):
    async def scenario():
        page = await Page(ScriptedModel(), failure, ScriptedModel()).loaded()
        answer = await page.call("loadModelFromUrl", "https://e.test/bad", {})
        assert (answer["message"], answer["code"]) == (text, failure.code)
        assert metadata(answer)["model_bytes"] == "0"
        assert page.engine.sources[1].closed == 1
        assert "No model loaded" in (await page.call("tokenize", "x", True))["message"]
        assert (await page.call("loadModelFromUrl", "https://e.test/good", {}))["type"] == "result"

    run(scenario())


def test_a_missing_file_is_told_as_the_server_put_it():
    async def scenario():
        page = Page()
        page.engine.missing = "Failed to fetch model shard: 404 Not Found"
        assert (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"] == page.engine.missing

    run(scenario())


@pytest.mark.parametrize("source, options, text", [
    ("", {}, "Model URL is empty."),
    (["", None], {}, "Model URL is empty."),
    ("m.gguf", {"nCtx": 10**9}, "Failed to load GGUF model: n_ctx is 1000000000; it must be"),
    ("m.gguf", {"cacheTypeK": 8, "flashAttention": 0}, "Non-F16 KV cache requires flashAttention"),
])
def test_bad_load_arguments_leave_the_loaded_model(source, options, text):
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        answer = await page.call("loadModelFromUrl", source, options)
        assert text in answer["message"]
        assert metadata(answer)["model_bytes"] == "100"
        assert len(page.engine.urls) == 1
        assert (await page.call("createCompletion", "x", {}))["value"] == "Hello world"

    run(scenario())


def test_a_list_with_one_url_and_a_set_of_one_shard_are_single_files():
    async def scenario():
        page = Page(ScriptedModel(), ScriptedModel())
        for source in (["https://e.test/a.gguf", ""], "https://e.test/m-00001-of-00001.gguf"):
            assert (await page.call("loadModelFromUrl", source, {}))["type"] == "result"
        assert page.engine.urls == ["https://e.test/a.gguf", "https://e.test/m-00001-of-00001.gguf"]

    run(scenario())


def test_any_shard_of_a_set_and_a_list_name_all_files():
    async def scenario():
        page = Page(ScriptedModel(), ScriptedModel())
        shards = [f"https://e.test/m-{i:05}-of-00003.gguf?x=1" for i in (1, 2, 3)]
        answer = await page.call("loadModelFromUrl", shards[1], {})
        assert answer["type"] == "result"
        assert page.events()[-1] == ("progress", {"loaded": 100, "total": 100, "shard": 3, "shards": 3})
        await page.call("loadModelFromUrl", ["https://e.test/b", "https://e.test/a"], {})
        assert page.engine.urls == [shards, ["https://e.test/b", "https://e.test/a"]]

    run(scenario())


def test_files_are_kept_only_when_the_model_is_there():
    async def scenario():
        page = Page(ScriptedModel(), FormatError("the file is no GGUF"), config={"cacheName": " mine "})
        await page.call("loadModelFromUrl", "https://e.test/m", {})
        await page.call("loadModelFromUrl", "https://e.test/m", {"cacheName": "other"})
        assert [(source.committed, source.discarded, source.closed) for source in page.engine.sources] == [(1, 0, 1), (0, 0, 1)]
        assert [options["cacheName"] for options in page.engine.source_options] == ["mine", "other"]

    run(scenario())


@pytest.mark.parametrize("failure", [FormatError("not a GGUF"), SourceError("the server returned 5 of 9 bytes")])
def test_a_cache_entry_that_is_no_good_is_dropped_and_fetched_once_more(failure):
    async def scenario():
        page = Page(failure, ScriptedModel())
        page.engine.cached = True
        answer = await page.call("loadModelFromUrl", "https://e.test/m", {})
        assert answer["value"] == 1
        assert [source.discarded for source in page.engine.sources] == [1, 0]
        assert page.engine.source_options[1]["force"] is True
        assert notes(answer)[1:4] == ["model_cache_entry_dropped", "model_cache_hit", "model_network_stream"]
        page.engine.outcomes = [failure, failure]
        assert str(failure) in (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"]
        page.engine.outcomes = [DeviceError("out of memory")]
        assert "out of memory" in (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"]
        assert page.engine.sources[-1].discarded == 0, "the file is not to blame"

    run(scenario())


def test_a_file_that_changes_on_the_way_is_fetched_anew_once():
    async def scenario():
        changed = SourceError("Failed to fetch model shard: the file changed identity since it was opened")
        changed.code = "FILE_CHANGED"
        page = Page(changed, ScriptedModel(), changed, changed)
        answer = await page.call("loadModelFromUrl", "https://e.test/m", {})
        assert answer["value"] == 1
        assert "model_file_changed_restarted" in notes(answer)
        assert page.engine.source_options[1]["force"] is True
        answer = await page.call("loadModelFromUrl", "https://e.test/m", {})
        assert (answer["message"], answer["code"]) == (str(changed), "FILE_CHANGED")
        assert len(page.engine.sources) == 4

    run(scenario())


def test_a_cancelled_load_stops_and_leaves_no_model():
    async def scenario():
        page = Page(ScriptedModel(), ScriptedModel())
        page.engine.load_pause = 2.0
        id = page.send("loadModelFromUrl", "https://e.test/m.gguf", {})
        await asyncio.sleep(0.02)
        assert (await page.call("cancel"))["value"] is None
        answer = await page.answer(id)
        assert (answer["message"], answer["code"]) == ("Model load was cancelled.", "CANCELLED")
        assert page.engine.sources[0].closed == 1
        page.engine.load_pause = 0
        assert (await page.call("loadModelFromUrl", "https://e.test/m.gguf", {}))["type"] == "result"

    run(scenario())


def test_whatever_breaks_when_a_transfer_is_cut_off_counts_as_cancelled():
    async def scenario():
        page = Page(SourceError("Failed to fetch model shard: network error: aborted"))

        async def cut_off(*args, cancel, **more):
            cancel.cancel()
            raise SourceError("Failed to fetch model shard: network error: aborted")

        page.engine.load_model = cut_off
        answer = await page.call("loadModelFromUrl", "https://e.test/m.gguf", {})
        assert answer["message"] == "Model load was cancelled."

    run(scenario())
