import asyncio

import pytest

from bridge.gpu.tuning import HARDWARE, SOFTWARE
from bridge.gpu.wgpu_device import request_device


@pytest.fixture(scope="session")
def device():
    device = asyncio.run(request_device())
    yield device
    device.destroy()


@pytest.fixture(params=[SOFTWARE, HARDWARE], ids=["software", "hardware"])
def tuning(request):
    """Both families of kernels, whatever the adapter: the hardware ones have no other test here."""
    return request.param
