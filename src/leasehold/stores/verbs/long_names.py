"""Names that were too long to be kept as they are, and what they are whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasehold.domain.job import NewJob
from leasehold.stores.database.database import Records, Session
from leasehold.stores.verbs.writing import Verbs


class LongNameVerbs(Verbs):
    """Names that are stored shortened."""

    def full_names(self, names: Sequence[str]) -> dict[str, str]:
        """The full form of each name that is stored shortened; other names are left out."""
        return dict(self._tuples("find_long_names", names=list(names)))


def keep_long_names(session: Session, jobs: Iterable[NewJob]) -> None:
    """In the transaction that stores the jobs."""
    names = {name: whole for job in jobs for name, whole in job.long_names}
    if names:
        records = [{"name": name, "whole": whole} for name, whole in sorted(names.items())]
        session.run("insert_long_names", names=Records(records))
