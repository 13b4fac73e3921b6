"""The runner contract: an execution has a name, starts at most once, and outlives the worker that started it.

The name is made of tenant, database, job and attempt, and is stored, with the site, before anything is started. A
runner for another system (Kubernetes, Slurm) is one class with these verbs; it must pass the suite
`tests/runners/conformance.py`.
The reasons: docs/decisions/0038-executions-an-execution-has-a-name-and-starts-once.md.
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
    """The phase of an execution. Only ABSENT and CREATED may still be started."""

    ABSENT = "absent"
    """The name was never used."""
    CREATED = "created"
    """The name is taken, and nothing has run under it yet. Another worker may be about to start it."""
    RUNNING = "running"
    """A process of the execution is alive, or may become alive before the next probe."""
    EXITED = "exited"
    """The execution has ended and none of its processes is alive. Its exit code and output can be collected."""
    TOMBSTONE = "tombstone"
    """Nothing is alive, and nothing will ever start under this name."""
    VANISHED = "vanished"
    """The execution was started, none of its processes is alive, and its end was not recorded."""


@frozen
class ExecutionState:
    phase: Phase
    code: int | None = None
    """The exit code of an exited execution, or minus the number of the signal that ended it."""


class Start(Enum):
    """The result of `ensure_started`."""

    STARTED = "started"
    """This call has started the execution."""
    FOUND = "found"
    """The execution was started before: probe it. It is never started again, even if it has ended or vanished."""
    FENCED = "fenced"
    """A newer token or a tombstone holds the name. Nothing will start with this token."""


@frozen
class Output:
    """What an execution has written to stdout or stderr."""

    tail: str
    """The end of the stream."""
    size: int
    """Bytes of the whole stream, as far as known."""
    is_cut: bool
    """Whether the tail is, or may be, less than the whole stream."""


@frozen
class Collected:
    """What a command or container left when it ended."""

    code: int
    stdout: Output
    stderr: Output
    result: str | None
    """The result as the execution left it. None: it left none."""
    was_stopped: bool = False
    """Whether a stop was requested before it ended."""
    reason: str | None = None
    """What the outside system says about the end, in words: for example, that it was killed for memory."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files that it left, as far as its spec names them, by name. They are deleted with the execution."""


class NothingToCollect(LeaseholdError, LookupError):
    """The execution has not exited, or was removed. `state` says which."""

    def __init__(self, name: str, state: ExecutionState) -> None:
        self.name = name
        self.state = state
        super().__init__(
            f"the execution {name} is {state.phase.value}: only an exited one that was not removed has output"
        )


class CannotStart(LeaseholdError):
    """The outside system refuses the execution: there is no such image, or no such program in it. Nothing has run, and
    another try under this name is allowed. `reason` is the system's message."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"the execution {name} cannot be started: {reason}")


class Runner(Protocol[Spec]):
    """Starts, watches and stops executions. Any worker of the site may repeat any verb, even after hours frozen.

    The verbs block for as long as the outside system takes to answer. They raise OSError, or the outside system's own
    error, if it cannot be reached: then nothing is known, and the caller tries again.
    """

    @property
    def site(self) -> str:
        """Where its executions live. Two workers share a site only if each can probe and stop the other's."""

    def ensure_started(self, name: str, token: int, spec: Spec) -> Start:
        """Start the execution unless it was ever started. `token` is the lease's; after the return nothing starts under
        this name with an older token. Raises CannotStart, and TimeoutError if another start is under way and does not
        finish."""

    def probe(self, name: str) -> ExecutionState:
        """Return the state of the execution, without changing anything."""

    def probe_many(self, names: Sequence[str]) -> dict[str, ExecutionState]:
        """Return the state of each execution, with one request to the outside system where possible."""

    def read_output(self, name: str, stream: Stream, offset: int, limit: int) -> tuple[bytes, int]:
        """Return up to `limit` bytes of the stream, starting at `offset`, or at the oldest byte kept if older ones were
        dropped; and the offset after them. No bytes: there are no more for now. To follow an execution, continue from
        the returned offset."""

    def stop(self, name: str, grace: float) -> None:
        """Ask the execution to end, and kill it after `grace` seconds; returns at once. An execution that was never
        started never will be. A later call may shorten the grace. Works without the worker that started it, and after
        the caller is gone."""

    def tombstone(self, name: str) -> ExecutionState:
        """Prevent any start under this name from now on, and probe again: a start may have been under way. A running
        execution is not stopped, an exited one can still be collected, a vanished one becomes a tombstone."""

    def collect(self, name: str) -> Collected:
        """Return what an exited execution has left. Raises NothingToCollect for any other, and InvalidInput for a
        result that cannot be kept."""

    def remove(self, name: str) -> bool:
        """Delete what the execution has left, once its ending is stored. The tombstone stays, against workers that
        start late. False: some process may be alive, and nothing was deleted."""

    def names(self) -> list[str]:
        """The executions that have left more here than a tombstone, alive or not."""

    def sweep(self, age: float) -> int:
        """Free the names whose tombstone is older than `age` seconds and that have nothing left to delete; returns how
        many. A worker frozen for longer could start such an execution again: the age is far longer than any lease."""


AnyRunner = Runner[Any]
