"""HTTPSource against real servers: the table shared with the page's byte source, and what only a socket can show."""

import json
from pathlib import Path

import pytest

from bridge.errors import BridgeError, InputError
from bridge.gguf.http_source import HTTPSource
from tests.gguf.scripted_server import ScriptedServer

CASES = json.loads((Path(__file__).parent / "http_cases.json").read_text())["cases"]
FILE = bytes(range(256)) * 2


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_shared_case(case):
    file = FILE[: case.get("size", 512)]
    slept, got, error, source = [], [], None, None
    with ScriptedServer(file, case["answers"]) as server:
        try:
            source = HTTPSource(server.url, allow_unvalidated=case.get("allow_unvalidated", False), sleep=slept.append)
            for offset, length in case.get("reads", []):
                got.append(source.read(offset, length))
        except BridgeError as raised:
            error = raised
    if "error" in case:
        assert error is not None, "it should have failed"
        assert case["error"] in str(error)
        assert case["fails_at"] == (0 if source is None else 1 + len(got))
        assert getattr(error, "status", None) == case.get("status", getattr(error, "status", None))
        assert server.url not in str(error) and "127.0.0.1" not in str(error)
    else:
        assert error is None
        assert got == [file[offset : offset + length] for offset, length in case.get("reads", [])]
        assert source.size == len(file)
    assert set(server.methods) == {"GET"}
    if "identity" in case:
        assert source.identity == case["identity"]
    if "requests" in case:
        assert server.ranges == [tuple(request) for request in case["requests"]]


def test_what_a_request_carries():
    with ScriptedServer(FILE, ["good"]) as server:
        HTTPSource(server.url, headers={"X-Test": "1"})
    (headers,) = server.requests
    assert headers["Accept-Encoding"] == "identity" and headers["X-Test"] == "1"


def test_stream_comes_in_chunks_with_one_request():
    with ScriptedServer(FILE, ["good"]) as server:
        source = HTTPSource(server.url)
        chunks = list(source.stream(10, 100, chunk=40))
        assert [len(chunk) for chunk in chunks] == [40, 40, 20] and b"".join(chunks) == FILE[10:110]
        assert source.requests == 2 and source.bytes_read == 100


def test_redirects_may_change_their_signature():
    """A download service redirects every request to a freshly signed address; the validator says it is one file."""
    with ScriptedServer(FILE, ["good"]) as store:
        answers = [{"status": 302, "set": {"Location": f"{store.url}?signature={i}", "Content-Range": None}, "body": ""} for i in range(3)]
        with ScriptedServer(FILE, answers) as front:
            source = HTTPSource(front.url)
            assert source.read(0, 4) == FILE[:4] and source.read(500, 12) == FILE[500:]
    assert store.paths == [f"/model.gguf?signature={i}" for i in range(3)]
    assert store.ranges[-1] == ("bytes=500-511", '"v1"')


def test_a_redirect_to_a_file_is_refused():
    for location in ("file:///etc/passwd", "ftp://127.0.0.1/x"):
        with ScriptedServer(FILE, [{"status": 302, "set": {"Location": location}, "body": ""}]) as server:
            with pytest.raises(BridgeError, match="neither http nor https|did not honour the range request: it answered 302"):
                HTTPSource(server.url)


def test_secrets_stay_with_the_first_host():
    with ScriptedServer(FILE, ["good"]) as store:
        other = store.url.replace("127.0.0.1", "localhost")
        with ScriptedServer(FILE, [{"status": 302, "set": {"Location": other, "Content-Range": None}, "body": ""}]) as front:
            HTTPSource(front.url, headers={"Authorization": "Bearer secret", "Cookie": "session=1"})
    assert front.requests[0]["Authorization"] == "Bearer secret"
    assert store.requests[0]["Authorization"] is None and store.requests[0]["Cookie"] is None
    assert store.requests[0]["Range"] == "bytes=0-0"


def test_nobody_listening():
    with ScriptedServer(FILE, ["good"]) as server:
        url = server.url
    slept = []
    with pytest.raises(BridgeError, match="network error: Connection refused"):
        HTTPSource(url, sleep=slept.append)
    assert slept == []


@pytest.mark.parametrize("url", ["http://", "http://host:port/x", "http://[::1/x", "ftp://host/x", "http://user:pw@host/x"])
def test_unusable_urls(url):
    with pytest.raises(InputError) as raised:
        HTTPSource(url)
    assert "pw" not in str(raised.value) and url not in str(raised.value).replace("http:// or", "")


def test_reading_after_close():
    with ScriptedServer(FILE, ["good"]) as server:
        source = HTTPSource(server.url)
        source.close()
        with pytest.raises(BridgeError, match="the source is closed"):
            source.read(0, 1)
