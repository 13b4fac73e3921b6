"""/metrics, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from leasehold.surfaces.http.route import RequestCaller, needs
from leasehold.surfaces.prometheus import CONTENT_TYPE, text_of


class _Text(PlainTextResponse):
    media_type = CONTENT_TYPE


def add_to(router: APIRouter) -> None:
    @router.get("/metrics", dependencies=needs("read"), tags=["metrics"], response_class=_Text)
    def metrics(caller: RequestCaller) -> _Text:
        """Attempts by outcome, waiting and running times, depths and ages, in Prometheus' text format 0.0.4."""
        caller.check_all_queues()
        return _Text(text_of(caller.view.metrics()))
