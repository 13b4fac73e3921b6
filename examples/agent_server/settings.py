"""What the environment may say, by the names of the document. All of it is read once, at the start."""

from __future__ import annotations

import os
import secrets
import socket

TOKEN_LIMIT = int(os.environ.get("TOKEN_LIMIT", "100000"))
"""Tokens that one run of a job may use. As many is still allowed, one more is not."""

SHUTDOWN_GRACE_PERIOD_SECONDS = float(os.environ.get("SHUTDOWN_GRACE_PERIOD_SECONDS", "300"))
"""How long running jobs may go on after the server was told to end."""

HEARTBEAT_SECONDS = float(os.environ.get("HEARTBEAT_SECONDS", "2"))
"""A lease is renewed this often and lasts three times as long: one missed beat does not cost it."""

WORKER_ID = f"{os.environ.get('WORKER_ID') or socket.gethostname()}:{secrets.token_hex(4)}"
"""`lease_owner` of the jobs that this process runs. The end is new with each start: a process that comes back after a
crash must not take itself for the one that has died."""

TENANTS = tuple(name.strip() for name in os.environ.get("TENANTS", "acme,globex").split(",") if name.strip())
"""Made at the start if they are not there. `leasehold tenants create` makes more, and they are served at once."""

TRANSCRIPT = os.environ.get("TRANSCRIPT")
"""A file that gets a line for each turn of every agent. None: nothing is written."""
