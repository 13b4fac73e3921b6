"""Lets attempts wait for time to pass: for a rate, for the next try of a step, in `ctx.wait`."""

from __future__ import annotations

import asyncio
import time

from leasehold.run.state import RunState


class Waits:
    """The waits of one worker, in real seconds. `leasehold.testing` has others, on the test's clock."""

    longest_pause = 0.5
    """Most seconds until an attempt polls again, even if a rate opens later: it may be opened or changed."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, run: RunState, seconds: float, timed: bool = True) -> None:
        """Wait at most until a stop is requested. Not `timed`: it only polls for something that time alone does not
        bring."""
        run.wait(seconds)

    async def wait_async(self, run: RunState, seconds: float, timed: bool = True) -> None:
        """A stop cancels the wait."""
        await asyncio.sleep(seconds)
