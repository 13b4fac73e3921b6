"""/v1/slots and /v1/rates: limits that hold for all workers."""

from __future__ import annotations

from fastapi import APIRouter

from leasehold.surfaces.http import asked, told
from leasehold.surfaces.http.names import NAME
from leasehold.surfaces.http.queues import closing_of
from leasehold.surfaces.http.route import Who, needs


def add_to(router: APIRouter) -> None:
    @router.get("/v1/slots", dependencies=needs("read"), tags=["limits"])
    def list_slots(who: Who) -> list[told.Slot]:
        """Every slot with its limit, the units in use, and the first jobs that hold them."""
        who.check_all_queues()
        return [told.Slot.model_validate(row) for row in who.operations.list_slots()]

    @router.put(f"/v1/slots/{{name:{NAME}}}", status_code=204, dependencies=needs("admin"), tags=["limits"])
    def set_slot(name: str, body: asked.SlotLimit, who: Who) -> None:
        """At most so many units in use at once, across all workers."""
        who.check_all_queues()
        who.operations.set_slot(name, body.limit, actor=who.actor)

    @router.get("/v1/rates", dependencies=needs("read"), tags=["limits"])
    def list_rates(who: Who) -> list[told.Rate]:
        """Every key with its limit, when the next job may start, and who closed it, why and until when."""
        who.check_all_queues()
        return [told.Rate.model_validate(row) for row in who.operations.list_rates()]

    @router.put(f"/v1/rates/{{key:{NAME}}}", status_code=204, dependencies=needs("admin"), tags=["limits"])
    def set_rate(key: str, body: asked.RateLimit, who: Who) -> None:
        """How often jobs of a key may start."""
        who.check_all_queues()
        who.operations.set_rate(key, body.limit, burst=body.burst, actor=who.actor)

    @router.post(
        "/v1/rates/{key:path}/close", status_code=204, dependencies=needs("operate"), tags=["limits"]
    )
    def close_rate(key: str, who: Who, body: asked.Closing = asked.Closing()) -> None:  # noqa: B008 - never changed
        """Start no job of this key, on any worker."""
        who.check_all_queues()
        who.operations.close_rate(key, closing_of(body, who))

    @router.post("/v1/rates/{key:path}/open", dependencies=needs("operate"), tags=["limits"])
    def open_rate(key: str, who: Who) -> told.Changed:
        """Start jobs of this key again."""
        who.check_all_queues()
        return told.Changed(changed=who.operations.open_rate(key, actor=who.actor))
