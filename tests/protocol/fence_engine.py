"""What the model of the fence knows of Docker's engine and of the folder of a run, and what one look makes of both."""

from typing import NamedTuple

from tests.protocol.fence_state import ABSENT, ALIVE, CREATED, EXITED, TOMBSTONE, VANISHED


class Engine(NamedTuple):
    entry: str = (
        ""  # "token.number" of the try that has made the container under the run's name; "": there is none
    )
    status: str = ""  # created, running or exited
    is_requested: bool = False  # to end
    on_its_way: frozenset[str] = frozenset()  # requests whose senders no longer wait for the answer


def token_of(entry: str) -> int:
    return int(entry.partition(".")[0])


def renamed(files: frozenset[str], folder: str) -> frozenset[str]:
    if f"open.{folder}" not in files:
        return files
    return files - {f"open.{folder}"} | {f"closed.{folder}"}


def marks(files: frozenset[str]) -> frozenset[str] | None:
    """What one look at the folder says. None: there is no folder."""
    if not files:
        return None
    return frozenset(name for name in files if name in ("stop", "tombstone") or name.startswith("started."))


def started(seen: frozenset[str] | None) -> frozenset[str]:
    return frozenset(name[8:] for name in seen or () if name.startswith("started."))


def judge(seen: frozenset[str] | None, status: str) -> str:
    if status in ("running", "exited"):
        return ALIVE if status == "running" else EXITED
    if seen is not None and "tombstone" in seen:
        return TOMBSTONE
    if not status:
        if seen is None:
            return ABSENT
        if started(seen):
            return VANISHED
    return TOMBSTONE if seen is not None and "stop" in seen else CREATED
