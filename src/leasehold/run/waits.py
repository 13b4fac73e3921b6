"""How runs wait for time to pass: for a rate, for the next try of a step, in `ctx.wait`."""

from __future__ import annotations

import asyncio
import time

from leasehold.run.state import RunState


class Waits:
    """Of one worker: real seconds. `leasehold.testing` has others, on the test's clock."""

    longest_pause = 0.5
    """Seconds after which a run looks again, though it was told to come back later: a rate may be opened or changed."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, run: RunState, seconds: float, timed: bool = True) -> None:
        """Not longer than until a stop is requested. Not `timed`: it only looks now and then for something that time
        alone does not bring."""
        run.wait(seconds)

    async def wait_async(self, run: RunState, seconds: float, timed: bool = True) -> None:
        """A stop cancels it."""
        await asyncio.sleep(seconds)
