"""One question for the status of a group: answered now, or as soon as it changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GroupStatus
from leasehold.operations.group_watch import GroupWatch


class GroupPoll:
    """One `status(wait=…, since=…)`."""

    def __init__(
        self, watch: GroupWatch, name: str, wait: Duration, since: int | None, kinds: tuple[str, ...] | None
    ) -> None:
        self._watch = watch
        self._name = name
        self._wait = seconds(wait, "wait")
        if since is not None and (isinstance(since, bool) or not isinstance(since, int)):
            raise InvalidInput(
                "since", f"{since!r} is not a version", "give the version of an earlier status"
            )
        self._since = since
        self._kinds = kinds

    def run(self) -> GroupStatus:
        if self._wait == 0 or self._since is None:
            return self._now()
        future, unread = self._watch.expect(self._name, self._kinds, self._since)
        try:
            if unread:
                self._watch.look_first(self._name, self._kinds)
            return future.result(self._wait)
        except TimeoutError:
            return self._watch.leave(self._name, self._kinds, future)
        finally:
            self._watch.drop(self._name, self._kinds, future)

    async def run_async(self) -> GroupStatus:
        """Holds no thread while it waits."""
        if self._wait == 0 or self._since is None:
            return await asyncio.to_thread(self._now)
        future, unread = self._watch.expect(self._name, self._kinds, self._since)
        try:
            if unread:
                await asyncio.to_thread(self._watch.look_first, self._name, self._kinds)
            return await asyncio.wait_for(asyncio.wrap_future(future), self._wait)
        except TimeoutError:
            return await asyncio.to_thread(self._watch.leave, self._name, self._kinds, future)
        finally:
            self._watch.drop(self._name, self._kinds, future)

    def _now(self) -> GroupStatus:
        status = self._watch.store.group_status(self._name, self._kinds)
        return replace(status, changed=self._since is None or status.version != self._since)
