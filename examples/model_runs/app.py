"""The app, its settings, and what brings the ids of runs to RQ workers."""

from __future__ import annotations

import os

from leasehold import Leasehold
from leasehold.contrib.rq import Delivery

QUEUE = "model_runs"
"""The name of the queue, in the database and in Redis. No worker of Leasehold serves it: ids come by RQ only."""

LEASE_SECONDS = float(os.environ.get("LEASE_SECONDS", "60"))
"""The document's 60 seconds. A third of it, 20 seconds, is the heartbeat."""

MAX_ATTEMPTS = int(os.environ.get("MAX_ATTEMPTS", "3"))
"""How often a run may fail or be stolen. The document knows no bound; a run that kills its workers needs one."""

RETRY_SECONDS = float(os.environ.get("RETRY_SECONDS", "2"))

app = Leasehold(
    os.environ.get("LEASEHOLD_URL", "sqlite:///model_runs.db"),
    results=os.environ.get("RESULTS_DIR", "model_runs.results"),
)
delivery = Delivery(app, "examples.model_runs.worker.execute_run", queue=QUEUE)  # REDIS_URL
