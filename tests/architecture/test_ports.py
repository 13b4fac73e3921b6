"""Servers of tests that run side by side do not get the same port."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT
from tests.ports import claim_port

FIRST, LAST = 9_900, 9_959
CLAIM = f"""
from tests.ports import claim_port
print(*[claim_port({FIRST}, {LAST}) for _ in range(12)], flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="abstract Unix sockets are Linux's")
def test_a_claimed_port_is_given_to_nobody_else_until_its_process_ends():
    command = [sys.executable, "-c", CLAIM]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        mine = [claim_port(FIRST, LAST) for _ in range(12)]
        other.communicate("\n")
    assert len(theirs) == len(set(mine)) == 12
    assert theirs.isdisjoint(mine)
    assert claim_port(min(theirs), min(theirs)) in theirs
