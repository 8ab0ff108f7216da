"""Finds the browser and the software Vulkan driver that tests and ``make run`` need, and installs what is missing.

``python -m tools.browser`` installs; ``find_browser()`` only looks. Chromium carries its own software WebGPU adapter
(SwiftShader); the Vulkan driver is for the same kernels under CPython, through wgpu.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VULKAN_DRIVER_FOLDERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
DOWNLOAD_TIMEOUT_S = 180

# WebGPU on the software adapter, and none of the background traffic that a test must not depend on.
FLAGS = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class SetupError(Exception):
    """Something the build needs is missing and could not be installed; the message says what to do."""


def find_browser() -> str | None:
    """Path of a Chromium: ``$CHROMIUM`` when set, else one on the PATH, else Playwright's own download."""
    chosen = os.environ.get("CHROMIUM")
    if chosen:
        if shutil.which(chosen) is None:
            raise SetupError(f"CHROMIUM names {chosen!r}, which is not a program that can be run")
        return shutil.which(chosen)
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    return _playwright_browser()


def require_browser() -> str:
    """Like find_browser, but raises SetupError when there is none."""
    if path := find_browser():
        return path
    raise SetupError("no Chromium was found; run 'python -m tools.browser', or set CHROMIUM to the path of one")


def _playwright_browser() -> str | None:
    from playwright.sync_api import sync_playwright

    try:
        with sync_playwright() as playwright:
            path = Path(playwright.chromium.executable_path)
    except Exception as error:  # its driver is a separate program: whatever stops that one arrives as a bare Exception
        raise SetupError(f"Playwright's driver does not start ({error}); run 'python -m tools.browser'") from error
    return str(path) if path.exists() else None


def has_vulkan_driver() -> bool:
    """Whether the Vulkan loader and at least one driver description are installed."""
    if ctypes.util.find_library("vulkan") is None:
        return False
    if os.environ.get("VK_ICD_FILENAMES") or os.environ.get("VK_DRIVER_FILES"):
        return True
    return any(file for folder in VULKAN_DRIVER_FOLDERS for file in Path(folder).glob("*.json"))


def install_browser() -> str:
    """Installs a Chromium and returns its path; raises SetupError.

    The distribution's package comes first because it brings the libraries it needs; Playwright's download does not.
    """
    try:
        apt_install("chromium")
    except SetupError:
        if not _download_browser():
            raise  # what the distribution's installer said is the more useful half
    if (path := find_browser()) is None:
        raise SetupError("a Chromium was installed but cannot be found; set CHROMIUM to its path")
    return path


def _download_browser() -> bool:
    download = [sys.executable, "-m", "playwright", "install", "chromium"]
    try:
        return subprocess.run(download, capture_output=True, timeout=DOWNLOAD_TIMEOUT_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def prepare_driver() -> None:
    """Makes sure that Playwright's own program starts; a minimal system lacks one library that it needs."""
    started = subprocess.run([sys.executable, "-m", "playwright", "--version"], capture_output=True, text=True)
    if started.returncode == 0:
        return
    if "libatomic" not in started.stderr:
        raise SetupError(f"Playwright's driver does not start: {started.stderr.strip()}")
    print("installing libatomic, which Playwright's driver needs", flush=True)
    apt_install("libatomic1")


def apt_install(*packages: str) -> None:
    """Installs Debian packages as root or through sudo; raises SetupError with the command to give by hand."""
    by_hand = f"install it as root: apt-get install {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        raise SetupError(f"{' and '.join(packages)} must be installed and this system has no apt-get")
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and shutil.which("sudo") is None:
        raise SetupError(f"{' and '.join(packages)} must be installed and this user is not root; {by_hand}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [*as_root, "apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    for command in ([*as_root, "apt-get", "update", "-q"], install):
        run = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"status {run.returncode}"]
        raise SetupError(f"apt-get could not install {' '.join(packages)} ({lines[-1]}); {by_hand}")


def main() -> int:
    try:
        prepare_driver()
        browser = find_browser()
        if browser is None:
            print("installing a Chromium", flush=True)
            browser = install_browser()
        if not has_vulkan_driver():
            print("installing a software Vulkan driver", flush=True)
            apt_install("mesa-vulkan-drivers", "libvulkan1")
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"browser: {browser}; Vulkan driver: present")
    return 0


if __name__ == "__main__":
    sys.exit(main())
