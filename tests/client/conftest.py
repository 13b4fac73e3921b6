from __future__ import annotations

from typing import Any

import pytest

from leasehold.testing import ManualClock


@pytest.fixture
def app_settings(clock: ManualClock) -> dict[str, Any]:
    """By a clock that stands still until the test advances it."""
    return {"clock": clock}
