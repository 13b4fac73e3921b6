"""The docker runner keeps what every external runner must keep, on a real engine."""

from __future__ import annotations

import pytest

from tests.runners.conformance import RunnerConformance

pytestmark = pytest.mark.xdist_group("docker")


class TestDocker(RunnerConformance):
    pass
