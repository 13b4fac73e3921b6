"""Reads of workers, their leases and the executions that they watch."""

from __future__ import annotations

from leasehold.domain.records import ExecutionRow, LeasePage, WorkerCard
from leasehold.operations.arguments import Limit, Named, PageCursor
from leasehold.operations.verb import Backend, read


@read("workers.list", guard="all queues", http="GET /v1/workers")
def list_workers(backend: Backend) -> list[WorkerCard]:
    """List live workers, as each last reported."""
    return backend.store.list_workers()


@read("leases.list", guard="rows", http="GET /v1/leases")
def list_leases(
    backend: Backend, worker: Named = None, limit: Limit = 50, cursor: PageCursor = None
) -> LeasePage:
    """List leases: which worker runs which job, and until when. A lease runs out unless it is renewed."""
    return backend.store.list_leases(worker, limit, cursor)


@read("executions.list", guard="rows", http="GET /v1/executions")
def list_executions(backend: Backend, limit: Limit = 500) -> list[ExecutionRow]:
    """List running commands and containers. `worker` is null until one adopts it."""
    return backend.store.list_executions(limit)
