"""The browser is the one that was asked for, and a missing one ends in a sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tools import browser


def test_the_browser_named_by_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("CHROMIUM", sys.executable)
    assert browser.find_browser() == sys.executable


def test_a_wrong_name_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(browser.SetupError, match="/no/such/browser"):
        browser.find_browser()


def test_without_a_browser_the_sentence_says_what_to_run(monkeypatch):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(browser, "BROWSERS", ())
    monkeypatch.setattr(browser, "_playwright_browser", lambda: None)
    with pytest.raises(browser.SetupError, match="run 'python -m tools.browser'"):
        browser.require_browser()


def test_a_user_who_may_not_install_gets_the_command(monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: name if name == "apt-get" else None)
    monkeypatch.setattr(browser.os, "geteuid", lambda: 1000)
    with pytest.raises(browser.SetupError, match="as root: apt-get install chromium"):
        browser.apt_install("chromium")


def test_a_failed_installation_says_why(monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: name)
    failed = subprocess.CompletedProcess([], 100, "", "Reading...\nE: Unable to locate package nothing\n")
    monkeypatch.setattr(browser.subprocess, "run", lambda *args, **options: failed)
    with pytest.raises(browser.SetupError, match="Unable to locate package nothing"):
        browser.apt_install("nothing")


def test_a_driver_is_present_only_with_loader_and_description(monkeypatch, tmp_path):
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.setattr(browser.ctypes.util, "find_library", lambda name: "libvulkan.so.1")
    monkeypatch.setattr(browser, "VULKAN_DRIVER_FOLDERS", (str(tmp_path),))
    assert not browser.has_vulkan_driver()
    (tmp_path / "driver.json").write_text("{}")
    assert browser.has_vulkan_driver()
    monkeypatch.setattr(browser.ctypes.util, "find_library", lambda name: None)
    assert not browser.has_vulkan_driver()
