import asyncio
from dataclasses import replace

import pytest

from bridge.gpu.tuning import HARDWARE, SOFTWARE, tuning_for, with_broadcasts
from bridge.gpu.wgpu_device import request_device


@pytest.fixture(scope="session")
def device():
    device = asyncio.run(request_device())
    yield device
    device.destroy()


ROW_KERNELS = replace(HARDWARE, matmul=HARDWARE.matmul[:2])
"""Software adapters take long to compile the tiles for prompts; those have tests of their own (test_tiles, test_fused)."""

BROADCASTS = with_broadcasts(SOFTWARE, 4)
"""What SwiftShader gets, in a page, too."""


@pytest.fixture(params=["software", "hardware"])
def tuning(request, device):
    """Both families of kernels, whatever the adapter: the hardware ones have no other test here."""
    return tuning_for(replace(device.info, is_software=True)) if request.param == "software" else ROW_KERNELS
