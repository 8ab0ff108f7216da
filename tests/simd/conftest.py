import asyncio

import pytest
from tools.build_simd import OUT, VARIANTS, build

from bridge.simd.wasmtime_host import WasmtimeHost

HOSTS = {
    "relaxed": {},  # sums of products of bytes saturate here, as on most processors without VNNI
    "signed": {"deterministic": True},  # as on ARM
    "simd": {"variant": "simd-threads"},
    "single": {"variant": "simd"},
}
"""Machines that behave differently. How processors with VNNI do is tested in Chromium (e2e/test_simd.py) where it has
it."""


@pytest.fixture(scope="session", autouse=True)
def kernels():
    for variant in VARIANTS:
        build(variant, OUT)


@pytest.fixture(scope="session")
def hosts(kernels):
    """Opened hosts by name, with two threads where there can be any."""
    opened = {}

    def host(name):
        if name not in opened:
            opened[name] = WasmtimeHost(2, **HOSTS[name])
        return opened[name]

    yield host
    for host_ in opened.values():
        host_.close()


@pytest.fixture(params=HOSTS)
def host(request, hosts):
    return hosts(request.param)


@pytest.fixture
def run():
    return asyncio.run
