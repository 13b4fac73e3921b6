"""Tests that must not meet run in one process: the marks that say so are heard."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("heard")
def test_marked_tests_are_grouped(request: pytest.FixtureRequest):
    """pytest 9.2 keeps a test's name elsewhere; pytest-xdist 3.8 then silently spreads what should stay together."""
    if not request.config.getoption("loadgroup", False):
        return  # run without `--dist loadgroup`: all in one process, or on the caller's own terms
    assert request.node.nodeid.endswith("@heard")
