"""The Leasehold app. `leasehold dev examples.tool_runner.app` shows its jobs on the dashboard."""

from __future__ import annotations

import os

from examples.tool_runner.settings import Settings
from leasehold import Leasehold

settings = Settings.from_environment()
app = Leasehold(os.environ.get("LEASEHOLD_URL") or "sqlite:///tool_runner.db")
app.include(["examples.tool_runner.tasks"])
