"""The Leasehold app: its database, and nothing else. The tasks register themselves with it."""

from __future__ import annotations

import os

from leasehold import Leasehold

app = Leasehold(os.environ.get("LEASEHOLD_URL", "sqlite:///agent_server.db"))
app.include(["examples.agent_server.tasks"])
