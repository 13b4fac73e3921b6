"""Tables of the user's own, kept in step."""

from __future__ import annotations

from typing import Protocol

from leasehold.domain.mirror import Mirror, MirrorRow


class Mirrors(Protocol):
    """A mirror's row tells what its job is, in the same transaction, whoever moves the job. Only jobs whose policy says
    `mirror` are seen."""

    def mirror_sql(self, mirror: Mirror) -> str:
        """A script that makes it, or makes it anew, for somebody else to run."""
        ...

    def unmirror_sql(self, mirror: Mirror) -> str:
        """A script that takes it away. The user's rows stay."""
        ...

    def add_mirror(self, mirror: Mirror) -> None:
        """Raises InvalidInput if the table or one of its columns is not there."""
        ...

    def remove_mirror(self, mirror: Mirror) -> None: ...

    def list_mirrors(self) -> list[MirrorRow]:
        """Those that are entered, and what is wrong with each."""
        ...

    def stray_mirrors(self) -> list[str]:
        """Triggers and functions of mirrors that are not entered."""
        ...
