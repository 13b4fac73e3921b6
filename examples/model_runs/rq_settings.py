"""`rq worker -c examples.model_runs.rq_settings -S rq.serializers.JSONSerializer`

RQ imports this before it forks, so a work horse finds everything imported: that saves most of a second a message."""

import os

from . import worker  # noqa: F401 - imported once, in the parent
from .app import QUEUE

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
QUEUES = [QUEUE]
