"""Signals that a handler raises instead of returning."""

from __future__ import annotations

from leasehold.domain.checks.times import Duration, seconds
from leasehold.domain.errors import Portable


class Signal(Portable, Exception):
    """A request of the handler, not an error."""


class Snooze(Signal):
    """Run the job again after this long. It costs no attempt."""

    def __init__(self, delay: Duration) -> None:
        self.delay = seconds(delay, "delay")
        super().__init__(f"snoozed for {self.delay:g} s")


class RetryIn(Signal):
    """Like Snooze, but the reason is stored as the job's last error."""

    def __init__(self, delay: Duration, reason: str = "asked to be retried") -> None:
        self.delay = seconds(delay, "delay")
        self.reason = _text(reason)
        super().__init__(self.reason)


class Pause(Signal):
    """Pause the job for this reason; it can be resumed."""

    def __init__(self, reason: str) -> None:
        self.reason = _text(reason)
        super().__init__(self.reason)


class Fail(Signal):
    """Fail at once; never retry."""

    def __init__(self, reason: str) -> None:
        self.reason = _text(reason)
        super().__init__(self.reason)


class StopRequested(Portable):
    """Raised by `ctx.raise_if_stopped()` in a blocking handler. Not an Exception, so that `except Exception` lets it
    through, as it does asyncio's CancelledError."""


class Park(Portable):
    """Raised by `ctx.ask` to leave the handler until the answers are there. Not an Exception, so that a handler which
    catches exceptions does not keep its worker waiting."""

    def __init__(self, *keys: str) -> None:
        super().__init__(f"asks {', '.join(map(repr, keys))}")


class HandlerExit(Portable):
    """Raised in code that awaits a handler which called `sys.exit` or raised KeyboardInterrupt: the exit ends the job,
    not the worker. Not an Exception, because SystemExit and KeyboardInterrupt are not."""


def _text(reason: object) -> str:
    """Convert the reason to text for the store. Handlers may pass what they have, such as a caught exception."""
    if isinstance(reason, BaseException):
        return f"{type(reason).__name__}: {reason}"
    return str(reason)
