"""Lanes and the order of tests, the command that repeats what has failed, and the rule that CI skips nothing.

The lanes are make targets: `quick`, `test`, `test-slow` and `soak` (tests/README.md). conftest.py in the root of the
repository loads this module for tests/ and examples/ alike.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parent / "faults"
EXAMPLES = Path(__file__).parents[1] / "examples"
SETTINGS = ("CI", "LEASEHOLD_TEST_PG")
"""Environment variables that decide what the tests run on, and what counts as a failure."""


# --- Lanes and order ------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the marks that choose a lane, and put the tests in order.

    A test that needs a server is marked `postgres`. With `one_store`, the same test on the other store is marked
    `soak`. The applications are `slow`, and those of their tests that start processes use one store. What needs a
    Docker engine is `slow`.

    Tests that mostly wait, for leases and killed processes, are spread among those that compute: one after the other
    they would leave the machine idle for half of the time. The longest of the slow ones begin first, so that no
    process ends long after the others.
    """
    for item in items:
        if _needs_postgres(item):
            item.add_marker("postgres")
        if item.get_closest_marker("slow") is not None:
            if EXAMPLES in item.path.parents:
                item.add_marker(pytest.mark.one_store("postgres"))
        elif EXAMPLES in item.path.parents or _group(item) == "docker":
            item.add_marker("slow")
    _leave_out_the_other_store(items)
    slow = [item for item in items if item.get_closest_marker("slow")]
    slow.sort(key=_seconds, reverse=True)
    others = [item for item in items if not item.get_closest_marker("slow")]
    waiting = [item for item in others if FAULTS in item.path.parents]
    computing = [item for item in others if FAULTS not in item.path.parents]
    items[:] = [*slow, *_spread(waiting, computing)]


def _leave_out_the_other_store(items: list[pytest.Item]) -> None:
    """A test that exists on one store only, or that was asked for by its whole name, is not left out."""
    kept = {_function(item) for item in items if (store := _the_one_store(item)) and store in _stores(item)}
    for item in items:
        if (store := _the_one_store(item)) and _stores(item) - {store} and _function(item) in kept:
            item.add_marker("soak")


def _the_one_store(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("one_store")
    return str(marker.args[0]) if marker else None


def _stores(item: pytest.Item) -> set[str]:
    """Those among a test's parameters."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {value for value in parameters.values() if isinstance(value, str)} & {"sqlite", "postgres"}


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else None


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _seconds(item: pytest.Item) -> float:
    """About how long a slow test takes: `slow(20)`."""
    marker = item.get_closest_marker("slow")
    return float(marker.args[0]) if marker is not None and marker.args else 5.0


def _needs_postgres(item: pytest.Item) -> bool:
    """By its fixtures, and theirs; those that ask for one of two stores say which in their name."""
    fixtures = {"postgres_server", "start_postgres"} & set(getattr(item, "fixturenames", ()))
    return bool(fixtures) or "postgres" in item.name.partition("[")[2]


def _spread(few: list[pytest.Item], many: list[pytest.Item]) -> list[pytest.Item]:
    placed = [((number + 0.5) / len(some), item) for some in (few, many) for number, item in enumerate(some)]
    return [item for _, item in sorted(placed, key=lambda place: place[0])]


# --- Reports --------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it runs in the background with SIGINT ignored, and all that a test starts would inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # In a worker of pytest-xdist the reports go to the main process, which alone keeps the count.
    if hasattr(config, "workerinput"):
        return
    skips_fail = os.environ.get("CI") == "true"
    config.pluginmanager.register(Repeat(skips_fail), "leasehold-repeat")
    if skips_fail:
        config.pluginmanager.register(NoSkips(), "leasehold-no-skips")


class Repeat:
    """Prints the one command that repeats what has failed, and with `skips_fail` what was skipped."""

    MOST = 20
    """With more tests than that, the command names their files."""

    def __init__(self, skips_fail: bool = False) -> None:
        self._skips_fail = skips_fail
        self._failed: dict[str, None] = {}
        self._soaks = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (self._skips_fail and _is_skip(report)):
            # pytest-xdist writes the group of a test behind its name.
            self._failed[re.sub(r"@[\w -]+$", "", report.nodeid)] = None
            self._soaks |= "soak" in report.keywords

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed or (self._skips_fail and _is_skip(report)):
            self._failed[report.nodeid] = None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._failed:
            terminalreporter.section("once more, only what has failed")
            terminalreporter.line(self.command())

    def command(self) -> str:
        names = list(self._failed)
        if len(names) > self.MOST:
            names = list(dict.fromkeys(name.partition("::")[0] for name in names))
        python = os.path.relpath(sys.executable)
        python = python if not python.startswith("..") else sys.executable
        settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
        lane = ["-m", ""] if self._soaks else []  # without it, pytest leaves out what soaks
        return shlex.join([*settings, python, "-m", "pytest", *lane, *names])


class NoSkips:
    """Fails a session in which a test was skipped, and says which and why.

    A test that cannot run has shown nothing, and on the machine whose word counts nobody would notice. Tests that
    were not asked for (`-m`, `-k`) are deselected, not skipped; expected failures are not skips either.
    """

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if _is_skip(report):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if _is_skip(report):
            self._note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped:
            terminalreporter.section("skipped, which is a failure under CI=true", red=True)
            for test, reason in sorted(self.skipped.items()):
                terminalreporter.line(f"{test}: {reason}")

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        location = report.longrepr
        self.skipped[report.nodeid] = str(location[2] if isinstance(location, tuple) else location)


def _is_skip(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """An expected failure is reported as skipped, too."""
    return report.skipped and not hasattr(report, "wasxfail")
