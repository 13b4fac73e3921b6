from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold import Leasehold
from leasehold.testing import ManualClock
from tests.backends import Backend


@pytest.fixture
def app(backend: Backend, clock: ManualClock) -> Iterator[Leasehold]:
    """An app on each store, as a user would make it."""
    with Leasehold(backend.url, schema=backend.schema, clock=clock) as app:
        yield app
