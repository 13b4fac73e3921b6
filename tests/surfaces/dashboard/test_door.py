"""Who comes in, from where, and what goes out with every answer."""

from __future__ import annotations

import contextlib
import http.client
import re
from collections.abc import Callable, Iterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from leasehold import Leasehold
from leasehold.dashboard import create_dashboard
from leasehold.operations import tokens
from leasehold.surfaces.dashboard.pages import ACTIONS, ALL
from tests.surfaces.dashboard.conftest import Dashboard, Viewer

Listen = Callable[[ASGIApp], Dashboard]


def every_path(app: Leasehold) -> list[str]:
    job = app.enqueue("add", {"a": 1})
    return ["/" + page.path.replace("{id}", job.id).replace("{run}", "none") for page in ALL]


def test_without_a_token_every_page_leads_to_the_sign_in_and_tells_nothing(
    app: Leasehold, dashboard: Dashboard
):
    stranger = dashboard.viewer()
    for path in every_path(app):
        answer = stranger.get(path)
        assert (answer.status_code, answer.text) == (303, ""), path
        assert answer.headers["location"].startswith("/sign-in?next=%2F"), path
        assert stranger.get(path, live=1).status_code == 303
    for verb in ACTIONS:
        assert stranger.do(verb, id="x").status_code == 401, verb


def test_who_sends_a_form_that_is_refused_reads_why(dashboard: Dashboard):
    """As most clients do: they send all of it, and only then read the answer."""
    connection = http.client.HTTPConnection(dashboard.url.removeprefix("http://"), timeout=30)
    with contextlib.closing(connection):
        headers = {"Origin": dashboard.url, "Connection": "close"}
        connection.request("POST", "/sign-in", b"token=" + b"x" * 20_000_000, headers)
        assert connection.getresponse().status == 413


def test_a_page_asked_for_is_the_one_that_signing_in_leads_to(dashboard: Dashboard):
    token = dashboard.server.token("read")
    with httpx2.Client(base_url=dashboard.url, headers={"Origin": dashboard.url}) as browser:
        requested = browser.get("/jobs?state=failed")
        form = browser.get(requested.headers["location"])
        assert 'value="/jobs?state=failed"' in form.text
        answer = browser.post("/sign-in", data={"token": token, "next": "/jobs?state=failed"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=failed")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert browser.get("/jobs?state=failed").status_code == 200
        assert browser.post("/sign-out").status_code == 303
        assert browser.get("/jobs").status_code == 303


def test_the_cookie_is_for_https_alone_where_a_proxy_ends_tls_before_us(app: Leasehold, listen: Listen):
    dashboard = listen(create_dashboard(app, hosts=["ops.example.org"]))
    token = dashboard.server.token("read")
    for origin, secure in (("https://ops.example.org", True), ("http://ops.example.org", False)):
        headers = {"Host": "ops.example.org", "Origin": origin}
        answer = dashboard.viewer().client.post("/sign-in", data={"token": token}, headers=headers)
        assert (answer.status_code, "Secure" in answer.headers["set-cookie"]) == (303, secure)


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example/", "/\\evil.example", "/\nx", ""])
def test_signing_in_leads_to_no_other_site(dashboard: Dashboard, wanted: str):
    with httpx2.Client(base_url=dashboard.url, headers={"Origin": dashboard.url}) as browser:
        token = dashboard.server.token("read")
        answer = browser.post("/sign-in", data={"token": token, "next": wanted})
        assert answer.headers["location"] == "/"


def test_a_token_that_does_not_count_is_refused_and_not_shown_again(dashboard: Dashboard):
    with httpx2.Client(base_url=dashboard.url, headers={"Origin": dashboard.url}) as browser:
        answer = browser.post("/sign-in", data={"token": "lh_wrong-and-secret"})
        assert answer.status_code == 401
        assert "is unknown" in answer.text
        assert "wrong-and-secret" not in answer.text
        assert "set-cookie" not in answer.headers
        enqueue = browser.post("/sign-in", data={"token": dashboard.server.token("enqueue")})
        assert (enqueue.status_code, "scope &#39;read&#39;" in enqueue.text) == (401, True)


def test_a_revoked_token_sees_nothing_more(app: Leasehold, dashboard: Dashboard):
    viewer = dashboard.viewer("read")
    assert viewer.get("/jobs").status_code == 200
    operations = app.__internals__.operations
    for row in operations.call(tokens.list_tokens):
        operations.call(tokens.revoke_token, row.token.name)
    assert viewer.get("/jobs").status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_verb_comes_from_a_page_of_ours_or_not_at_all(
    app: Leasehold, dashboard: Dashboard, headers: dict[str, str]
):
    job = app.enqueue("add", {"a": 1})
    client = dashboard.viewer("admin").client
    answer = client.post("/do/job.cancel", data={"id": job.id}, headers=headers)
    assert answer.status_code == 403
    assert job.refresh().state == "queued"
    fine = client.post("/do/job.cancel", data={"id": job.id}, headers={"Sec-Fetch-Site": "same-origin"})
    assert (fine.status_code, job.refresh().state) == (303, "cancelled")


def test_a_host_that_is_not_ours_is_refused_on_every_route(app: Leasehold, dashboard: Dashboard):
    client = dashboard.viewer("admin").client
    for path in [*every_path(app), "/static/dashboard.css", "/sign-in", "/nothing"]:
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 421, path
    for verb in ACTIONS:
        answer = client.post(f"/do/{verb}", headers={"Host": "evil.example", "Origin": "http://evil.example"})
        assert answer.status_code == 421, verb


def test_every_answer_forbids_inline_code_frames_and_other_sites(app: Leasehold, admin: Viewer):
    for path in [*every_path(app), "/static/dashboard.css", "/sign-in", "/nothing"]:
        headers = admin.get(path).headers
        policy = headers["content-security-policy"]
        for rule in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'"):
            assert rule in policy, path
        assert "unsafe" not in policy, path
        assert headers["x-content-type-options"] == "nosniff", path
    page = admin.page("/jobs")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page)


def test_a_viewer_is_refused_every_verb_and_shown_no_button(app: Leasehold, viewer: Viewer):
    for path in every_path(app):
        answer = viewer.get(path)
        if answer.status_code == 200:
            assert f'action="{"/do/"}' not in answer.text, path
    for verb in ACTIONS:
        assert viewer.do(verb, id="x").status_code == 403, verb


def test_the_read_only_switch_takes_every_button_and_verb_away_from_admins_too(
    app: Leasehold, listen: Listen
):
    dashboard = listen(create_dashboard(app, rate_limit=0, read_only=True))
    admin = dashboard.viewer("admin")
    job = app.enqueue("add", {"a": 1})
    page = admin.page(f"/jobs/{job.id}")
    assert "read-only" in page
    assert 'action="/do/' not in page
    for verb in ACTIONS:
        answer = admin.do(verb, id=job.id)
        assert (answer.status_code, "read-only" in answer.text) == (403, True), verb
    assert job.refresh().state == "queued"


def test_without_tokens_whoever_is_on_this_machine_may_do_everything(app: Leasehold, listen: Listen):
    dashboard = listen(create_dashboard(app, tokens=False))
    somebody = dashboard.viewer()
    job = app.enqueue("add", {"a": 1})
    assert somebody.do("job.cancel", id=job.id).status_code == 303
    assert job.refresh().state == "cancelled"
    through_a_proxy = dashboard.server.client(**{"X-Forwarded-For": "203.0.113.9"})
    assert through_a_proxy.get("/jobs").status_code == 303


def test_it_works_below_a_path_of_another_app(app: Leasehold, listen: Listen):
    job = app.enqueue("fail", {})
    inner = create_dashboard(app, tokens=False)
    dashboard = listen(Starlette(routes=[Mount("/ops/jobs", app=inner)]))
    somebody = dashboard.viewer()
    for path in every_path(app):
        answer = somebody.get(f"/ops/jobs{path}")
        if answer.status_code != 200:
            continue
        links = re.findall(r'(?:href|src|action|connect)="([^"#]+)', answer.text)
        assert links
        assert {link for link in links if not link.startswith("/ops/jobs/")} == set(), path
    answer = somebody.client.post(
        "/ops/jobs/do/job.cancel",
        data={"id": job.id, "back": "/ops/jobs/jobs?state=queued"},
        headers={"Origin": dashboard.url},
    )
    assert answer.headers["location"] == "/ops/jobs/jobs?state=queued"
    outside = somebody.client.post(
        "/ops/jobs/do/job.cancel",
        data={"id": job.id, "back": "//evil.example/"},
        headers={"Origin": dashboard.url},
    )
    assert outside.headers["location"] == "/ops/jobs/"
    assert somebody.client.get("/ops/jobs/static/dashboard.css").status_code == 200


@pytest.fixture
def _tenants(app: Leasehold) -> Iterator[None]:
    """Dropped again: on PostgreSQL they are schemas of a server that other tests share."""
    for name in ("acme", "blue"):
        app.tenants.create(name)
    yield
    for name in ("acme", "blue"):
        app.tenants.drop(name)


@pytest.mark.usefixtures("_tenants")
def test_each_tenant_has_its_own_pages_and_tokens_see_their_own_alone(app: Leasehold, listen: Listen):
    job = app.tenant("acme").enqueue("add", {"a": 1})
    dashboard = listen(create_dashboard(app, rate_limit=0))
    everybody = dashboard.viewer("admin", tenants=("*",))
    assert job.id in everybody.page("/tenant/acme/jobs")
    assert job.id not in everybody.page("/jobs")
    assert 'href="/tenant/blue/"' in everybody.page("/jobs")
    page = everybody.page(f"/tenant/acme/jobs/{job.id}")
    assert 'action="/tenant/acme/do/job.cancel"' in page
    one = dashboard.viewer("admin", tenants=("acme",))
    assert job.id in one.page("/tenant/acme/jobs")
    assert job.id in one.page("/jobs")  # it need not name its only one
    assert one.get("/tenant/blue/jobs").status_code == 404
    assert one.client.post(
        "/tenant/blue/do/job.cancel", data={"id": job.id}, headers={"Origin": dashboard.url}
    ).status_code == 404  # fmt: skip


def test_a_token_for_some_queues_sees_and_steers_jobs_of_those_alone(app: Leasehold, dashboard: Dashboard):
    mine, other = app.enqueue("greet", {"name": "x"}), app.enqueue("add", {"a": 1})
    agent = dashboard.viewer("read", "operate", queues=("agents",))
    page = agent.page("/jobs")
    assert mine.id in page
    assert other.id not in page
    assert agent.page("/")
    assert agent.get(f"/jobs/{mine.id}").status_code == 200
    assert agent.get(f"/jobs/{other.id}").status_code == 404
    assert "no job" in agent.reported(agent.do("job.cancel", id=other.id))
    assert other.refresh().state == "queued"
    assert agent.get("/bulk", verb="cancel", state="queued").status_code == 403
    assert agent.get("/bulk", verb="cancel", queue="agents").status_code == 200


def test_files_outside_the_static_folder_are_not_served(dashboard: Dashboard):
    client = dashboard.viewer().client
    for name in ("../mount.py", "%2e%2e/mount.py", "vendor/README.md", "nothing.js", "..%2Fmount.py"):
        assert client.get(f"/static/{name}").status_code == 404, name
    answer = client.get("/static/dashboard.js?v=x")
    assert "immutable" in answer.headers["cache-control"]


def on_the_wire(viewer: Viewer, path: str) -> int:
    answer = viewer.get(path)
    assert answer.status_code == 200, path
    return answer.num_bytes_downloaded


def test_the_first_paint_of_any_page_loads_less_than_150_kb(app: Leasehold, admin: Viewer):
    for n in range(60):
        app.enqueue("add", {"a": n})
    for path in every_path(app):
        answer = admin.get(path)
        if answer.status_code != 200:
            continue
        loaded = set(re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]+)"', answer.text))
        sizes = {name: on_the_wire(admin, name) for name in loaded}
        total = answer.num_bytes_downloaded + sum(sizes.values()) + on_the_wire(admin, "/static/icons.svg")
        assert total < 150_000, (path, sizes, answer.num_bytes_downloaded)
