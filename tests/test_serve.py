"""The development server: ranges, validators, isolation, media types, and nothing outside its folder."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from bridge.errors import InputError
from bridge.serve import create_app, open_socket, running_server

CONTENT = bytes(range(256)) * 1024


@pytest.fixture
def folder(tmp_path):
    served = tmp_path / "served"
    (served / "web" / "demo").mkdir(parents=True)
    (served / "model.gguf").write_bytes(CONTENT)
    for name in ("module.mjs", "code.wasm", "page.html"):
        (served / name).write_bytes(b"x")
    (served / "web" / "demo" / "index.html").write_text("demo")
    (tmp_path / "secret").write_text("secret")
    (served / "linked").symlink_to(tmp_path / "secret")
    return served


def ask(address: str, path: str, method: str = "GET", **headers: str):
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_ranges_and_validators(folder):
    with running_server(create_app(folder)) as address:
        whole, body = ask(address, "/model.gguf")
        tag = whole.getheader("ETag")
        assert (whole.status, body) == (200, CONTENT)
        assert not tag.startswith("W/")
        for wanted, piece in (("bytes=5-9", CONTENT[5:10]), ("bytes=262000-", CONTENT[262000:]), ("bytes=-3", CONTENT[-3:])):
            part, body = ask(address, "/model.gguf", Range=wanted, If_Range=tag)
            assert (part.status, body) == (206, piece)
            assert part.getheader("Content-Range").endswith(f"/{len(CONTENT)}")
        assert ask(address, "/model.gguf", Range="bytes=5-9", If_Range='"another"')[0].status == 200
        assert ask(address, "/model.gguf", Range=f"bytes={len(CONTENT)}-")[0].status == 416
        assert ask(address, "/model.gguf", If_None_Match=tag)[0].status == 304
        head, body = ask(address, "/model.gguf", method="HEAD")
        assert (head.getheader("Content-Length"), body) == (str(len(CONTENT)), b"")


@pytest.mark.parametrize("isolated", [True, False])
def test_isolation_can_be_switched(folder, isolated):
    with running_server(create_app(folder, isolated=isolated)) as address:
        answer, _ = ask(address, "/page.html")
        assert answer.getheader("Cross-Origin-Opener-Policy") == ("same-origin" if isolated else None)
        assert answer.getheader("Cross-Origin-Embedder-Policy") == ("require-corp" if isolated else None)
        assert answer.getheader("Cache-Control") == "no-cache"


def test_media_types_that_browsers_insist_on(folder):
    with running_server(create_app(folder)) as address:
        types = {name: ask(address, f"/{name}")[0].getheader("Content-Type") for name in ("module.mjs", "code.wasm")}
        assert types["module.mjs"].startswith("text/javascript")
        assert types["code.wasm"] == "application/wasm"
        assert ask(address, "/model.gguf")[0].getheader("Content-Type") == "application/octet-stream"


@pytest.mark.parametrize(
    "path", ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/web/../../secret", "//etc/passwd", "/a%00b", "/" + "a" * 5000]
)
def test_nothing_outside_the_folder_is_served(folder, path):
    with running_server(create_app(folder)) as address:
        answer, body = ask(address, path)
        assert answer.status == 404 and b"secret" not in body


def test_links_in_the_folder_are_followed(folder):
    with running_server(create_app(folder)) as address:
        assert ask(address, "/linked")[1] == b"secret"


def test_the_root_leads_to_the_demo(folder):
    with running_server(create_app(folder)) as address:
        answer, _ = ask(address, "/")
        assert (answer.status, answer.getheader("Location")) == (307, "web/demo/")
        assert ask(address, "/web/demo/")[1] == b"demo"


def test_a_port_in_use_is_a_sentence():
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"cannot listen on port {port} of 127.0.0.1 \(Address already in use\)"):
            open_socket("127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_a_sentence(port):
    with pytest.raises(InputError, match=f"0 to 65535, got {port}"):
        open_socket("127.0.0.1", port)


def test_a_missing_folder_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        create_app(tmp_path / "nothing")
