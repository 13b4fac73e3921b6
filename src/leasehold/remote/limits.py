"""`api.slots` and `api.rates`: limits that hold for all workers, set, read and closed at run time."""

from __future__ import annotations

from typing_extensions import Unpack

from leasehold.remote import decode
from leasehold.remote.exchange import Ask, get, once, part, post
from leasehold.remote.pause_window import PauseOptions, closing_body
from leasehold.remote.transport import Line
from leasehold.types import RateRow, SlotRow


class Slots:
    """Named resources with so many units each: `api.slots.set("browser", 4)`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def set(self, name: str, limit: int) -> None:
        """At most `limit` units in use at once, across all workers. 0 closes the slot; what runs goes on."""
        self._line.run(once(self._setting(name, limit), decode.nothing))

    async def alist(self) -> list[SlotRow]:
        return await self._line.arun(once(get("/v1/slots"), decode.slots))

    def list(self) -> list[SlotRow]:
        """Every slot with its limit, the units in use, and the first 20 jobs that hold them."""
        return self._line.run(once(get("/v1/slots"), decode.slots))

    async def aset(self, name: str, limit: int) -> None:
        await self._line.arun(once(self._setting(name, limit), decode.nothing))

    def _setting(self, name: str, limit: int) -> Ask:
        return Ask("PUT", f"/v1/slots/{part(name)}", body={"limit": limit}, repeat=True)


class Rates:
    """How often jobs of a key may start: `api.rates.set("openai", "60/min", burst=1)`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def set(self, key: str, limit: str, *, burst: int = 1) -> None:
        """Evenly spaced ("60/min" is one a second), up to `burst` at once after a silence. In any window of W seconds
        never more than W times the rate, plus `burst`."""
        self._line.run(once(self._setting(key, limit, burst), decode.nothing))

    def close(self, key: str, **closing: Unpack[PauseOptions]) -> None:
        """Start no job of this key, on any worker, `for_` a duration, `until` an instant, or until it is opened.
        Running ones go on. `reason` is shown to whoever asks why."""
        self._line.run(once(self._closing(key, closing), decode.nothing))

    def open(self, key: str) -> bool:
        """False: it was not closed."""
        return self._line.run(once(post(f"/v1/rates/{part(key)}/open"), decode.changed))

    async def aset(self, key: str, limit: str, *, burst: int = 1) -> None:
        await self._line.arun(once(self._setting(key, limit, burst), decode.nothing))

    async def aclose(self, key: str, **closing: Unpack[PauseOptions]) -> None:
        await self._line.arun(once(self._closing(key, closing), decode.nothing))

    async def aopen(self, key: str) -> bool:
        return await self._line.arun(once(post(f"/v1/rates/{part(key)}/open"), decode.changed))

    async def alist(self) -> list[RateRow]:
        return await self._line.arun(once(get("/v1/rates"), decode.rates))

    def list(self) -> list[RateRow]:
        """Every key with its limit, when the next job may start, and who closed it, why and until when."""
        return self._line.run(once(get("/v1/rates"), decode.rates))

    def _setting(self, key: str, limit: str, burst: int) -> Ask:
        return Ask("PUT", f"/v1/rates/{part(key)}", body={"limit": limit, "burst": burst}, repeat=True)

    def _closing(self, key: str, closing: PauseOptions) -> Ask:
        return post(f"/v1/rates/{part(key)}/close", closing_body(closing))
