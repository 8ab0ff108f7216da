import asyncio
from dataclasses import replace

import pytest

from bridge.gpu.tuning import HARDWARE, SOFTWARE
from bridge.gpu.wgpu_device import request_device


@pytest.fixture(scope="session")
def device():
    device = asyncio.run(request_device())
    yield device
    device.destroy()


ROW_KERNELS = replace(HARDWARE, matmul=HARDWARE.matmul[:2])
"""Software adapters take long to compile the tiles for prompts; those have tests of their own (test_tiles, test_fused)."""


@pytest.fixture(params=[SOFTWARE, ROW_KERNELS], ids=["software", "hardware"])
def tuning(request):
    """Both families of kernels, whatever the adapter: the hardware ones have no other test here."""
    return request.param
