"""One device for model after model: made when it is first wanted, and anew after it was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bridge.gpu.device import Device


class DeviceOwner:
    """What ``load_model`` takes as ``devices``; ``request`` makes a device and raises DeviceError where there is none."""

    def __init__(self, request: Callable[[], Awaitable[Device]]) -> None:
        self._request = request
        self.device: Device | None = None
        """The one there is; it may be lost."""

    async def __call__(self) -> Device:
        """The device, or another one if it was lost."""
        if self.device is not None and self.device.lost is not None:
            self.drop()
        if self.device is None:
            self.device = await self._request()
        return self.device

    def drop(self) -> None:
        """Destroy the device, so that the next call makes one; harmless without one."""
        device, self.device = self.device, None
        if device is not None:
            device.destroy()
