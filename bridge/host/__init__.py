"""The engine behind a page's bridge: calls in, events and results out (the wire protocol's receiving end).

``host`` answers calls, ``models`` holds the loaded model, ``completion`` and ``text`` do the work, ``token_events`` and
``snapshot`` shape what goes back. They know an engine only by a few members (see ``engine``), so they run under CPython;
``pyodide_engine`` and ``sources`` are the only files here that touch JavaScript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.host.host import Host


def create_host(post: Any, js: Any, config: Any = None, direct: bool = False) -> Host:
    """The host for one bridge: ``post(json, buffers)`` takes its messages, ``js`` is the module ``bridge_js``.

    ``direct`` says that it runs on the page's own thread, where token events follow other defaults.
    """
    from bridge.host.pyodide_engine import host_for_page

    return host_for_page(post, js, config, direct)
