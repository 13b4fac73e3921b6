"""The pytest plugin: the fixture `leasehold_sandbox` puts an app on its own store for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leasehold.app import Leasehold
    from leasehold.testing import OpenSandbox, Sandbox


@pytest.fixture
def leasehold_sandbox(tmp_path: Path) -> Iterator[OpenSandbox]:
    """`box = leasehold_sandbox(app)`: see leasehold.testing."""
    from leasehold.testing import sandbox

    with ExitStack() as stack:

        def open_sandbox(app: Leasehold, *, url: str | None = None) -> Sandbox:
            return stack.enter_context(sandbox(app, tmp_path, url=url))

        yield open_sandbox
