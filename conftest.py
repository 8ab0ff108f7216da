"""Makes a skipped test a failure where everything must run: with ``--no-skips``, or in CI (``CI=true``)."""

from __future__ import annotations

import os

import pytest

# The matrices of the tests are small: where several threads of numpy meet other work, they mostly wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser):
    default = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    parser.addoption("--no-skips", action="store_true", default=default, help="a skipped test counts as failed")


def pytest_configure(config):
    if config.getoption("--no-skips"):
        config.pluginmanager.register(_NoSkips(), "no-skips")


class _NoSkips:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.skipped and not hasattr(report, "wasxfail"):
            _fail(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        report = yield
        if report.skipped:
            _fail(report)
        return report


def _fail(report) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{reason} - and a skip is a failure here (--no-skips)"
