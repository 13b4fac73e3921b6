"""Enqueue with a key of the caller's: a repeat of the request finds what the first one has made.

The key is taken first, in the transaction that stores the jobs. So the two are there together or not at all, and of two
that come at the same moment the second waits for the first, whatever process they are in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from leasehold.domain.errors import IdempotencyKeyReused
from leasehold.domain.job import NewJob
from leasehold.stores.database.database import Session
from leasehold.stores.results import Enqueued, Once
from leasehold.stores.verbs.dependencies import check_order
from leasehold.stores.verbs.enqueue import EnqueueVerbs, enqueue_in

KEPT = 86_400.0
"""Seconds that a key is remembered."""
FORGET = 10
"""Old ones that each new one takes along."""


class EnqueueOnceVerbs(EnqueueVerbs):
    """Enqueue for requests that a client may repeat."""

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> Once:
        """Enqueue once per key: for a day, the same key and fingerprint return the jobs that the first call made,
        whatever their state, and make nothing. Another fingerprint raises IdempotencyKeyReused. Of two calls at the
        same moment, one makes the jobs and the other returns them."""
        check_order(jobs)
        self._make_gates(jobs)

        def work(session: Session) -> Once:
            if not session.tuples("take_request", key=key, fingerprint=fingerprint, seconds=KEPT):
                return _again(session, key, fingerprint)
            made = enqueue_in(session, jobs)
            session.run("answer_request", key=key, answer=json.dumps(made))
            session.run("forget_requests", key=key, seconds=KEPT, limit=FORGET)
            return Once(made, repeated=False)

        return self._database.transact(work, idempotent=True)


def _again(session: Session, key: str, fingerprint: str) -> Once:
    (row,) = session.rows("find_request", key=key)
    if row["fingerprint"] != fingerprint:
        raise IdempotencyKeyReused
    answers = json.loads(row["answer"])
    return Once([Enqueued(job_id, created) for job_id, created in answers], repeated=True)
