"""Logs the queues that a starting worker serves, and those of its tasks that it leaves to other workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from leasehold.domain.hooks import WEBHOOK_TASK
from leasehold.tasks.definition import TaskDefinition
from leasehold.worker.settings import WorkerSettings

logger = logging.getLogger("leasehold.worker")


def log_queues(settings: WorkerSettings, tasks: Mapping[str, TaskDefinition]) -> None:
    """Log the queues. A worker of the default queue whose tasks all use others was most likely started without
    `--queues`: its jobs would wait, and nothing else would say why. Explicit queues may be for `using(queue=…)`."""
    used = {task.settings.queue for name, task in tasks.items() if name != WEBHOOK_TASK}
    left = ",".join(sorted(used.difference(settings.queues))) if settings.claims else ""
    serves = ", ".join(settings.queues) or "what it is handed"
    whose = f" of {', '.join(settings.tenants)}" if settings.tenants else ""
    but = f"; its tasks also use {left}" if left else ""
    logger.info("worker %s serves %s%s%s", settings.name, serves, whose, but)
    if left and settings.queues == ("default",) and "default" not in used:
        logger.warning(
            "none of its tasks uses queue default; start it with --queues %s, or app.worker(queues=%r)",
            left,
            left,
        )
