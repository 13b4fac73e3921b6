"""Renew: what a holder does with its lease while the work goes on. Every write is fenced by the token."""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.domain.job import Renewal
from leasehold.domain.states import Flag
from leasehold.stores.database.database import Columns
from leasehold.stores.database.places import FLAGS
from leasehold.stores.verbs.writing import Verbs


class RenewVerbs(Verbs):
    """The worker extends its leases and records where its executions live."""

    def renew(self, leases: Mapping[str, int]) -> list[Renewal]:
        """Extend the leases given as id and token, even expired ones. A lease that is missing from the result is no
        longer held."""
        held = {job_id: leases[job_id] for job_id in sorted(leases) if leases[job_id] > 0}
        if not held:
            return []
        renewed = self._ask("renew", held)
        answer = [Renewal(job_id, FLAGS[stop]) for job_id, stop in renewed.items()]
        missing = {job_id: token for job_id, token in held.items() if job_id not in renewed}
        if missing:
            # The statement does not wait: what it skipped is locked, or lost. A look finds out which.
            locked = self._ask("find_leases", missing)
            answer += [Renewal(job_id, FLAGS[stop], extended=False) for job_id, stop in locked.items()]
        return answer

    def _ask(self, statement: str, leases: Mapping[str, int]) -> dict[str, int]:
        columns = Columns(ids=list(leases), tokens=list(leases.values()))
        return dict(
            self._database.single(lambda session: session.tuples(statement, leases=columns), idempotent=True)
        )

    def read_flags(self, leases: Mapping[str, tuple[int, int]]) -> dict[str, Flag]:
        """The stop requests on these leases, given as id, sequence number and token. The call only reads: it extends no
        lease and does not report lost ones."""
        if not leases:
            return {}
        ids = {seq: job_id for job_id, (seq, _) in leases.items()}
        held = Columns(jobs=list(ids), tokens=[token for _, token in leases.values()])
        rows = self._database.read(lambda session: session.tuples("read_flags", leases=held))
        return {ids[seq]: flag for seq, stop in rows if (flag := FLAGS[stop]) is not None}

    def place_execution(self, job_id: str, token: int, site: str, name: str) -> bool:
        """Record where an execution will live, before it starts. False: the lease is lost, so the execution must not
        start."""
        return bool(
            self._database.single(
                lambda session: session.tuples(
                    "place_execution", id=job_id, token=token, site=site, name=name
                )
            )
        )

    def mark_started(self, job_id: str, token: int) -> bool:
        """Record that the execution has started. False: the lease is lost, or no place was recorded."""
        return bool(
            self._database.single(lambda session: session.tuples("mark_started", id=job_id, token=token))
        )
