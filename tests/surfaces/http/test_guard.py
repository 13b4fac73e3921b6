"""Who may ask: every route refuses whoever has no business there, and a route that does not say who may call it cannot
be made."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route

from leasehold import Leasehold
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.records import WorkerCard
from leasehold.domain.tokens import SCOPES
from leasehold.http import create_app, router
from leasehold.operations import jobs, tokens
from leasehold.surfaces.http.routes import LARGEST_BODY, guarded_by, scope_of
from tests.surfaces.http.test_jobs import settle
from tests.surfaces.serving import PATIENCE, Server

OPEN = {"/livez", "/readyz"}
"""The only ones that anybody may call."""
FILLED = {"id": "019a7c1e-5b0c-7d11-9a3e-0f2d6c4b8a10", "name": "default", "key": "go"}


def guarded_routes(api: FastAPI) -> list[APIRoute]:
    """All of them: one that is not ours, or not guarded, fails whoever walks."""
    wrong = unguarded(api.routes)
    assert wrong == [], f"not guarded: {wrong}"
    found = [route for route in api.routes if isinstance(route, APIRoute)]
    assert len(found) > 40, "where are the routes?"
    return found


def unguarded(routes: list[BaseRoute]) -> list[str]:
    return [str(route) for route in routes if type(route).__name__ != "GuardedRoute"]


def requests_of(api: FastAPI, app: Leasehold) -> Iterator[tuple[APIRoute, httpx2.Request]]:
    job = app.enqueue("add", {"a": 1})
    for route in guarded_routes(api):
        path = route.path_format
        for name, value in {**FILLED, "id": job.id}.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, f"say what to fill in: {path}"
        for method in route.methods:
            body = {"json": {}} if method in ("POST", "PUT") else {}
            yield route, httpx2.Request(method, f"http://x{path}", **body)


def code_of(client: httpx2.Client, request: httpx2.Request, **headers: str) -> tuple[int, str]:
    answer = client.request(
        request.method,
        request.url.path,
        content=request.content,
        headers={"Content-Type": "application/json", **headers},
    )
    assert answer.headers["content-type"] == "application/problem+json", (
        request,
        answer.status_code,
        answer.text,
    )
    return answer.status_code, answer.json()["code"]


@pytest.fixture
def tenants(app: Leasehold) -> Iterator[None]:
    """Their schemas are in the database that all tests share, so they go with the test."""
    for name in ("acme", "beta"):
        app.tenants.create(name)
    yield
    for row in app.tenants.list():
        app.tenants.drop(row.name)


def test_every_route_is_refused_without_a_token_that_counts(api: FastAPI, app: Leasehold, server: Server):
    operations = app.__internals__.operations
    revoked, _ = server.token("admin"), operations.call(tokens.revoke_token, "token 0")
    anonymous = server.client()
    strangers = {
        "none": {},
        "invented": {"Authorization": "Bearer lh_invented"},
        "revoked": {"Authorization": f"Bearer {revoked}"},
        "another scheme": {"Authorization": f"Basic {server.token('admin')}"},
    }
    before = operations.call(jobs.count)
    walked = 0
    for route, request in requests_of(api, app):
        if route.path in OPEN:
            assert scope_of(route.path, route.dependencies) is None
            continue
        for caller, headers in strangers.items():
            assert code_of(anonymous, request, **headers) == (401, "unauthenticated"), (caller, request)
            walked += 1
    assert walked > 150
    assert operations.call(jobs.count) == {**before, "queued": before["queued"] + 1}, (
        "only the walk's own job came in"
    )


def test_every_route_is_refused_to_a_token_without_its_scope(api: FastAPI, app: Leasehold, server: Server):
    clients = {
        scope: server.client(*[other for other in SCOPES if other not in (scope, "admin")])
        for scope in SCOPES
    }
    for route, request in requests_of(api, app):
        scope = scope_of(route.path, route.dependencies)
        if scope is not None:
            assert code_of(clients[scope], request) == (403, "scope-missing"), request


BODIES = {
    "/answer": {"value": True},
    "/snooze": {"until": "2100-01-01T09:00:00Z"},
    "/top-up": {"amounts": {"tokens": 1}},
}
"""Of routes about one job that do without none."""


@pytest.mark.usefixtures("tenants")
def test_every_route_is_refused_to_a_token_of_another_tenant(api: FastAPI, app: Leasehold, server: Server):
    job = app.tenant("acme").enqueue("add", {"a": 1})
    beta = server.client(token=server.token("admin", tenants=["beta"]))
    many = server.client(token=server.token("admin", tenants=["b*", "c*"]))
    for route, request in requests_of(api, app):
        if route.path in OPEN:
            continue
        assert code_of(beta, request, **{"Leasehold-Tenant": "acme"}) == (404, "tenant-not-found"), request
        assert code_of(beta, request, **{"Leasehold-Tenant": "nobody"}) == (404, "tenant-not-found"), request
        assert code_of(many, request) == (403, "scope-missing"), (
            "which tenant is not said, and the app's own is not its"
        )
        if "{id}" in route.path:
            path = route.path_format.format(**{**FILLED, "id": job.id})
            body = next((body for end, body in BODIES.items() if path.endswith(end)), {})
            (method,) = route.methods
            answer = beta.request(method, path, json=body if method == "POST" else None)
            assert (answer.status_code, answer.json()["code"]) == (404, "job-not-found"), path
    assert app.tenant("acme").get(job.id).state == "queued"


def test_every_route_is_refused_under_a_name_that_is_not_ours(api: FastAPI, app: Leasehold, server: Server):
    admin = server.client("admin")
    for _, request in requests_of(api, app):
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost:80@evil.example", ""):
            assert code_of(admin, request, Host=host) == (421, "wrong-host"), (host, request)


def test_every_route_is_refused_to_pages_of_other_sites(api: FastAPI, app: Leasehold, server: Server):
    admin = server.client("admin")
    for _, request in requests_of(api, app):
        for origin in ("https://evil.example", "null", "http://localhost:1"):
            assert code_of(admin, request, Origin=origin) == (403, "foreign-origin"), (origin, request)


def test_unknown_paths_and_methods_are_guarded_against_other_names_too(server: Server):
    client = server.client()
    assert client.get("/nothing").status_code == 404
    assert client.get("/nothing", headers={"Host": "evil.example"}).status_code == 421
    wrong = client.delete("/v1/jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert client.get("/v1/groups/a/stop").headers["allow"] == "POST", "the stop of a, not the group a/stop"
    assert client.delete("/livez", headers={"Host": "evil.example"}).status_code == 421


def test_a_route_that_does_not_say_who_may_call_it_cannot_be_made(app: Leasehold):
    made = APIRouter(route_class=guarded_by(None))
    with pytest.raises(RuntimeError, match="does not say who may call it"):
        made.get("/v1/secrets")(lambda: None)
    api = create_app(app)
    with pytest.raises(RuntimeError, match="does not say who may call it"):
        api.get("/v1/secrets")(lambda: None)
    assert len(guarded_routes(api)) == len(guarded_routes(create_app(app)))


def test_a_route_beside_the_guard_is_noticed_by_the_walk(app: Leasehold):
    api = create_app(app)
    api.router.routes.append(Route("/beside", PlainTextResponse("hello")))
    assert len(unguarded(api.routes)) == 1


def test_the_same_origin_and_those_that_were_named_may_ask(
    app: Leasehold, listen: Callable[[FastAPI], Server]
):
    server = listen(create_app(app, hosts=["API.example.org"], origins=["https://ops.example.org"]))
    client = server.client("read")
    assert client.get("/v1/jobs", headers={"Origin": server.url}).status_code == 200
    assert client.get("/v1/jobs", headers={"Origin": "https://ops.example.org"}).status_code == 200
    assert client.get("/v1/jobs", headers={"Host": "api.example.org:8443"}).status_code == 200
    assert (
        client.get("/v1/jobs", headers={"Host": "api.example.org", "Origin": server.url}).status_code == 403
    )


def test_where_no_token_is_asked_for_only_this_machine_may_ask(
    app: Leasehold, listen: Callable[[FastAPI], Server]
):
    server = listen(create_app(app, tokens=False))
    client = server.client()
    assert client.get("/v1/jobs").status_code == 200
    for name, value in {
        "X-Forwarded-For": "203.0.113.1",
        "X-Forwarded-Proto": "https",
        "Via": "1.1 proxy",
        "X-Real-IP": "203.0.113.1",
        "Forwarded": "for=203.0.113.1",
    }.items():
        assert client.get("/v1/jobs", headers={name: value}).status_code == 401, name
    assert client.get("/v1/jobs", headers={"Authorization": "Bearer lh_invented"}).status_code == 401
    assert server.client("enqueue").get("/v1/jobs").status_code == 403, "a token that is brought counts"


def test_a_mounted_router_is_guarded_in_somebody_elses_app(
    app: Leasehold, listen: Callable[[FastAPI], Server]
):
    mine = FastAPI()
    mine.include_router(router(app), prefix="/jobs-api")
    server = listen(mine)
    anonymous, reader = server.client(), server.client("read")
    answer = anonymous.get("/jobs-api/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert reader.get("/jobs-api/v1/jobs", headers={"Host": "evil.example"}).status_code == 421
    assert reader.get("/jobs-api/v1/jobs").json() == {"jobs": [], "next": None}
    assert reader.get("/jobs-api/v1/jobs/nothing").json()["code"] == "job-not-found"
    assert reader.post("/jobs-api/v1/jobs", json={"task": "add"}).status_code == 403


def test_links_lead_below_what_a_router_is_mounted_at(app: Leasehold, listen: Callable[[FastAPI], Server]):
    mine = FastAPI()
    mine.include_router(router(app), prefix="/api/v1/jobs-api")
    admin = listen(mine).client("admin")
    made = admin.post("/api/v1/jobs-api/v1/jobs", json={"task": "add", "args": {"a": 1}})
    assert admin.get(made.headers["location"]).json()["id"] == made.json()["id"]
    settle(app, Success("2"))
    again = admin.post(f"{made.headers['location']}/retry")
    assert admin.get(again.headers["location"]).json()["retry_of"] == made.json()["id"]
    app.schedules.set("every/day", "add", {"a": 1}, every="1d")
    ran = admin.post("/api/v1/jobs-api/v1/schedules/every/day/run")
    assert admin.get(ran.headers["location"]).json()["id"] == ran.json()["id"]
    page = admin.get("/api/v1/jobs-api/v1/jobs?limit=1")
    assert admin.get(page.headers["link"].partition(">")[0].strip("<")).status_code == 200


def test_a_token_of_some_queues_knows_no_others(app: Leasehold, server: Server):
    mine = app.enqueue("greet", {"name": "x"})
    others = app.enqueue("add", {"a": 1})
    client = server.client(token=server.token("read", "enqueue", "operate", queues=["agent*"]))
    assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]] == [mine.id]
    assert client.get(f"/v1/jobs/{mine.id}").status_code == 200
    for path in (
        "",
        "/updates",
        "/log",
        "/history",
        "/attempts",
        "/explain",
        "/result",
        "/watch",
        "/questions",
        "/steps",
        "/relatives",
        "/budget",
    ):
        assert client.get(f"/v1/jobs/{others.id}{path}").json()["code"] == "job-not-found", path
    assert client.post(f"/v1/jobs/{others.id}/cancel").status_code == 404
    assert {row["queue"] for row in client.get("/v1/queues").json()} == {"agents"}
    assert [task["name"] for task in client.get("/v1/tasks").json()] == ["greet"]
    refused = client.post("/v1/jobs", json={"task": "add", "args": {"a": 1}})
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown-task")
    assert "add" not in refused.json()["detail"].partition("known:")[2]
    assert client.post("/v1/stop", json={"everything": True}).json()["code"] == "queue-limited"
    assert client.post("/v1/queues/default/pause").json()["code"] == "queue-limited"
    assert client.post("/v1/stop", json={"queue": "agents", "dry_run": True}).status_code == 200
    for path in (
        "/v1/count",
        "/v1/groups/g",
        "/v1/lanes",
        "/v1/slots",
        "/v1/rates",
        "/v1/schedules",
        "/v1/workers",
    ):
        assert client.get(path).json()["code"] == "queue-limited", path


def test_what_a_job_waits_for_in_other_queues_is_not_told(app: Leasehold, server: Server):
    before = app.enqueue("fail", {}, lane="shared")
    settle(app, Failure("a secret of others", final=True))
    waits = app.enqueue("greet", {"name": "x"}, lane="shared")
    tied = app.enqueue("greet", {"name": "y"}, after=[before.refresh(), waits], on_parent_failure="run")
    everybody = server.client("read")
    agents = server.client(token=server.token("read", queues=["agents"]))
    (hold,) = [one for one in everybody.get(f"/v1/jobs/{waits.id}/explain").json() if "lane" in one["cause"]]
    assert "a secret of others" in hold["detail"]
    reported = agents.get(f"/v1/jobs/{waits.id}/explain")
    assert [one["cause"] for one in reported.json()] == [
        one["cause"] for one in everybody.get(f"/v1/jobs/{waits.id}/explain").json()
    ]
    assert before.id not in reported.text
    assert "secret" not in reported.text
    assert {row["id"] for row in everybody.get(f"/v1/jobs/{tied.id}/relatives").json()} == {
        before.id,
        waits.id,
    }
    assert {row["id"] for row in agents.get(f"/v1/jobs/{tied.id}/relatives").json()} == {waits.id}


@pytest.mark.usefixtures("tenants")
def test_a_token_of_one_tenant_need_not_name_it(app: Leasehold, server: Server):
    acme = server.client(token=server.token("admin", tenants=["acme"]))
    made = acme.post("/v1/jobs", json={"task": "add", "args": {"a": 1}}).json()["id"]
    assert app.tenant("acme").get(made).task == "add"
    everywhere = server.client(token=server.token("read", tenants=["*"]))
    assert everywhere.get(f"/v1/jobs/{made}").status_code == 404
    assert everywhere.get(f"/v1/jobs/{made}", headers={"Leasehold-Tenant": "acme"}).status_code == 200
    assert everywhere.get("/v1/jobs", headers={"Leasehold-Tenant": "all"}).status_code == 422


@pytest.mark.usefixtures("tenants")
def test_the_other_tenants_of_a_worker_are_not_told(app: Leasehold, server: Server):
    app.__internals__.store.report_worker(WorkerCard("w", ("default",), ("add",), tenants=("acme", "beta")))
    beta = server.client(token=server.token("admin", tenants=["beta"]))
    everybody = server.client(token=server.token("admin", tenants=["*"]), **{"Leasehold-Tenant": "beta"})
    assert [card["tenants"] for card in beta.get("/v1/workers").json()] == [["beta"]]
    assert [card["tenants"] for card in everybody.get("/v1/workers").json()] == [["acme", "beta"]]


def test_a_body_that_is_too_large_is_not_read(server: Server):
    token = server.token("enqueue")
    assert send(server, token, {"Content-Length": str(LARGEST_BODY + 1)}, []) == 413
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    assert (
        send(server, token, {"Transfer-Encoding": "chunked"}, [piece] * (LARGEST_BODY // 65_536 + 2)) == 413
    )


@pytest.mark.parametrize("connected", ["close", "keep-alive"])
def test_who_sends_a_body_that_is_refused_reads_why(server: Server, connected: str):
    """As most clients do: they send all of it, and only then read the answer."""
    host = server.url.removeprefix("http://")
    for token, status in ((server.token("enqueue"), 413), ("lh_unknown", 401)):
        connection = http.client.HTTPConnection(host, timeout=PATIENCE)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {token}", "Connection": connected}
            connection.request("POST", "/v1/jobs", b" " * 20_000_000, headers)
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["status"]) == (status, status)
            if connected == "keep-alive":
                connection.request("GET", "/livez")
                assert connection.getresponse().status == 200


def test_a_body_is_not_asked_for_only_to_be_discarded(server: Server):
    token = server.token("enqueue")
    expects = {"Content-Length": str(LARGEST_BODY + 1), "Expect": "100-continue"}
    assert send(server, token, expects, []) == 413


def send(server: Server, token: str, headers: dict[str, str], pieces: list[bytes]) -> int:
    """As a client does that goes on sending until it is answered."""
    host = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    try:
        connection.putrequest("POST", "/v1/jobs")
        for name, value in {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            **headers,
        }.items():
            connection.putheader(name, value)
        connection.endheaders()
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.send(piece)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_form_or_plain_text_of_another_page_is_no_request(server: Server):
    client, body = server.client("enqueue"), b'{"task": "add", "args": {"a": 1}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.post("/v1/jobs", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 422, kind
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201, "as JSON the same body is fine"
