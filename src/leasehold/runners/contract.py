"""What an external runner promises: a run has a name, starts at most once, and outlives the worker that started it.

The name is made of tenant, job and attempt, and is stored, with the site, before anything is started. A runner for
another system (Kubernetes, Slurm) is one class with these verbs; `tests/runners/conformance.py` is the suite that it
must pass. Why it is made like this: docs/decisions/0038-executions-an-execution-has-a-name-and-starts-once.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from leasehold.domain.errors import LeaseholdError
from leasehold.domain.frozen import frozen

Spec = TypeVar("Spec", contravariant=True)
Stream = Literal["stdout", "stderr"]


class Phase(Enum):
    """Where a run stands. ABSENT and CREATED may still be started; nothing else ever will be."""

    ABSENT = "absent"
    """Nobody has used the name."""
    CREATED = "created"
    """The name is taken, and nothing has run under it yet. Somebody may be about to start it."""
    RUNNING = "running"
    """Something of the run is alive, or may come alive before the next look."""
    EXITED = "exited"
    """It has ended and nothing of it is alive. Its exit code and output can be collected."""
    TOMBSTONE = "tombstone"
    """Nothing is alive, and nothing will ever start under this name."""
    VANISHED = "vanished"
    """It was started, nothing of it is alive, and nobody has recorded how it ended."""


@frozen
class State:
    phase: Phase
    code: int | None = None
    """Of an exited run: its exit code, or minus the number of the signal that ended it."""


class Start(Enum):
    """What `ensure_started` came to."""

    STARTED = "started"
    """This call has started the run."""
    FOUND = "found"
    """It was started before: probe it. It is never started again, even if it has ended or vanished."""
    FENCED = "fenced"
    """A newer token or a tombstone holds the name. Nothing will start by this token."""


@frozen
class Output:
    """What a run has written to stdout or stderr."""

    tail: str
    """The end of it."""
    size: int
    """Bytes in all, as far as it is known."""
    is_cut: bool
    """Whether the tail is, or may be, less than all."""


@frozen
class Collected:
    """What a command or container has left when it ended."""

    code: int
    stdout: Output
    stderr: Output
    result: str | None
    """What the run left as its result, as it left it. None: it left none."""
    was_stopped: bool = False
    """Whether anybody had asked it to end before it did."""
    reason: str | None = None
    """What the outside system says about the ending, in words: that it was killed for memory, for one."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files that it left, as far as its spec names them, by name. They are deleted with the run."""


class NothingToCollect(LeaseholdError, LookupError):
    """The run has not exited, or was removed. `state` says which."""

    def __init__(self, name: str, state: State) -> None:
        self.name = name
        self.state = state
        super().__init__(
            f"the run {name} is {state.phase.value}: only an exited one that was not removed has output"
        )


class CannotStart(LeaseholdError):
    """The outside system refuses the run: there is no such image, or no such program in it. Nothing has run, and
    another try under this name is allowed. `reason` is what it said."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"the run {name} cannot be started: {reason}")


class Runner(Protocol[Spec]):
    """Every verb may be called again, by any worker of the site, at any time, also by one that was frozen for hours.

    The verbs block for as long as the outside system takes to answer. They raise OSError, or the outside system's own
    error, if it cannot be reached: then nothing is known, and the caller asks again.
    """

    @property
    def site(self) -> str:
        """Where its runs live. Two workers have the same site only if each can probe and stop the other's runs."""
        ...

    def ensure_started(self, name: str, token: int, spec: Spec) -> Start:
        """Start the run unless anybody ever has. `token` is the lease's; from the return on nothing starts under this
        name by an older one. Raises CannotStart, and TimeoutError if another start is under way and does not come to
        an end."""
        ...

    def probe(self, name: str) -> State:
        """Where the run stands, without changing anything."""
        ...

    def probe_many(self, names: Sequence[str]) -> dict[str, State]:
        """Where each of them stands: one question to the outside system for all, where it can answer that."""
        ...

    def read_output(self, name: str, stream: Stream, offset: int, limit: int) -> tuple[bytes, int]:
        """Up to so many bytes of what the run has written, from this offset of the whole stream on, or from the oldest
        byte kept if those were dropped; and the offset after them. No bytes: there are no more for now. To follow a
        run go on from the offset that you were given."""
        ...

    def stop(self, name: str, grace: float) -> None:
        """Ask the run to end, and kill it after so many seconds; returns at once. A run that was never started never
        will be. A later call may shorten the grace. Works without the worker that started it, and after this one is
        gone."""
        ...

    def tombstone(self, name: str) -> State:
        """Make sure that nothing starts under this name from now on, and look again: a start may have been under way.
        What runs is not stopped, what has exited can still be collected, what has vanished is a tombstone from now
        on."""
        ...

    def collect(self, name: str) -> Collected:
        """What an exited run has left. Raises NothingToCollect for any other, and InvalidInput for a result that
        cannot be kept."""
        ...

    def remove(self, name: str) -> bool:
        """Delete what the run has left, once its ending is stored. A tombstone stays, against starters that wake up
        late. False: something of it may be alive, and nothing was deleted."""
        ...

    def names(self) -> list[str]:
        """The runs that have left anything here but a tombstone, alive or not."""
        ...

    def sweep(self, age: float) -> int:
        """Free the names whose tombstone is older than so many seconds and that have nothing left to delete, and say
        how many. Whoever froze before that can start such a run again: the age is far longer than any lease."""
        ...


AnyRunner = Runner[Any]
