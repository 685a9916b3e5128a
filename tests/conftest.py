"""Rules for all tests: nothing is skipped where everything is installed (CRONPOLL_FORBID_SKIPS=1, or
"but: " and the one reason that is allowed). CRONPOLL_THOROUGH=1 tries all that `tools/support` draws.

Soaks (`test_soak_*`) are ten times as long with CRONPOLL_LONG=1, and begin with CRONPOLL_SEED where
that is given. Tests that build the Debian package or boot a systemd are marked `booted` and have a
command of their own: `pytest -m booted`. Examples that Hypothesis draws are the same every time, so
that a failure is one of the change; with CRONPOLL_LONG=1 they are others each time.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.tools.transitions import watched

# How long an example takes is the machine's affair: no deadline, no complaint about slow ones.
PATIENT: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("another-each-time", **PATIENT)
settings.register_profile("same-every-time", derandomize=True, database=None, **PATIENT)
settings.load_profile("another-each-time" if os.environ.get("CRONPOLL_LONG") else "same-every-time")

# `nohup`, and a shell that starts us in the background, ignore these for us and all our children.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)

# Hundreds of daemons and commands are started. Where bytecode is not written, each one compiles the
# whole package again, and each worker all tests: half of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

WAITING = ("tests/daemon/", "tests/cli/", "tests/system/")
"""Rooms whose tests mostly wait for a daemon: begun first, so that at the end nobody waits alone."""

BOOTED = {"machine", "wheels"}
"""Fixtures that take a machine, or a package, to make."""


@pytest.fixture(autouse=True, scope="session")
def every_transition_is_in_its_table() -> Iterator[None]:
    """The tables of `machine` are the oracle: no test, and no simulated life, makes another one."""
    with watched():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))
    for item in items:
        if BOOTED & set(getattr(item, "fixturenames", ())):
            item.add_marker("booted")


def pytest_collection_finish() -> None:
    """What has been collected stays: it is not looked through again for what could be freed."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    forbidden = os.environ.get("CRONPOLL_FORBID_SKIPS", "")
    if not forbidden:
        return
    allowed = forbidden.removeprefix("but: ") if forbidden.startswith("but: ") else None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [
        report
        for report in (reporter.stats.get("skipped", []) if reporter is not None else [])
        if allowed is None or allowed not in str(report.longrepr)
    ]
    if skipped:
        reporter.write_line(
            f"{len(skipped)} tests were skipped, and CRONPOLL_FORBID_SKIPS is set", red=True
        )
        session.exitstatus = 1
