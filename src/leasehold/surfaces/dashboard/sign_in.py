"""Sign-in with a token, and sign-out."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from leasehold.domain.errors import TenantNotFound
from leasehold.surfaces.dashboard import forms, render
from leasehold.surfaces.dashboard.access import Access, forget, remember
from leasehold.surfaces.dashboard.page_request import base_of, is_inside, root_of
from leasehold.surfaces.guard.denied import Denied


async def show(request: Request, access: Access) -> Response:
    access.check_place(request)
    return _form(request, request.query_params.get("next", ""))


async def enter(request: Request, access: Access) -> Response:
    access.check_place(request)
    access.check_rate(request)
    form = await forms.read(request)
    token, wanted = form.fields.get("token", "").strip(), form.fields.get("next", "")
    try:
        caller = await run_in_threadpool(access.caller, request, f"Bearer {token}", form.maybe("tenant"))
        caller.check_scope("read")
    except Denied as denied:
        if denied.reason not in ("unauthenticated", "scope-missing"):
            raise
        text = denied.detail.replace("name one with Leasehold-Tenant", "name one below")
        return _form(request, wanted, text, for_tenants=True)
    except TenantNotFound as error:
        return _form(request, wanted, str(error), for_tenants=True)
    answer = RedirectResponse(_inside(request, wanted, caller.tenant), 303)
    remember(answer, request, token)
    return answer


async def leave(request: Request, access: Access) -> Response:
    access.check_place(request)
    answer = RedirectResponse(f"{root_of(request)}/sign-in", 303)
    forget(answer, request)
    return answer


def _inside(request: Request, wanted: str, tenant: str | None) -> str:
    """The page after sign-in: the wanted one if it is a page of the dashboard, else the first page of the tenant."""
    root = root_of(request)
    if is_inside(root, wanted) and wanted != f"{root}/":
        return wanted
    return f"{base_of(root, tenant)}/"


def _form(request: Request, wanted: str, problem: str = "", *, for_tenants: bool = False) -> Response:
    values = {"root": root_of(request), "next": wanted, "problem": problem, "for_tenants": for_tenants}
    status = 401 if problem else 200
    return HTMLResponse(render.page("sign_in.html", values), status, {"Cache-Control": "no-store"})
