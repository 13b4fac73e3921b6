"""The read of the audit: what operators did, and what was refused."""

from __future__ import annotations

from leasehold.domain.audit import AuditPage
from leasehold.domain.checks.texts import storable_name
from leasehold.operations.arguments import Limit, Named, SeqCursor
from leasehold.operations.verb import Backend, read


@read("audit.list", scope="admin", guard="all queues", http="GET /v1/audit")
def list_audit(
    backend: Backend,
    *,
    actor: Named = None,
    verb: Named = None,
    target: Named = None,
    limit: Limit = 50,
    cursor: SeqCursor = None,
) -> AuditPage:
    """List one page of the audit, newest first: what operators did, and what was refused."""
    return backend.store.list_audit(actor, verb, target and storable_name(target, "target"), limit, cursor)
