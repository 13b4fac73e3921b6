"""How often somebody may ask, how deep a body may be, and how long a read may take."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx2
import psycopg
import pytest
from fastapi import FastAPI

from leasehold import Leasehold
from leasehold.domain.errors import InvalidInput
from leasehold.http import create_app, router
from leasehold.surfaces import guard
from leasehold.surfaces.guard import Denied, RequestRates, address_class
from leasehold.surfaces.http.routes import DEEPEST_BODY, is_deeper
from tests.backends import Backend, new_job
from tests.surfaces.serving import Server

MINE, OTHER = "Bearer lh_mine", "Bearer lh_other"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> RequestRates:
    made = RequestRates(10, clock)
    made.register_token(MINE, "mine")
    made.register_token(OTHER, "other")
    return made


def count(rates: RequestRates, authorization: str | None, address: str | None = "203.0.113.1", **more) -> int:
    """How many go through until one does not."""
    for passed in range(1000):
        try:
            rates.check(authorization, address, **more)
        except Denied:
            return passed
    raise AssertionError("nobody was refused")


def test_a_burst_is_let_through_and_then_the_rate(rates: RequestRates, clock: Clock):
    assert count(rates, MINE) == 20
    clock.now += 0.5
    assert count(rates, MINE) == 5
    clock.now += 3600
    assert count(rates, MINE) == 20, "a silence is not saved up"


def test_who_is_refused_is_told_when_to_come_back(rates: RequestRates, clock: Clock):
    count(rates, MINE)
    with pytest.raises(Denied) as refused:
        rates.check(MINE, None)
    assert refused.value.retry_after == 1
    clock.now += refused.value.retry_after
    rates.check(MINE, None)


def test_refused_requests_do_not_lengthen_the_wait(rates: RequestRates, clock: Clock):
    count(rates, MINE)
    for _ in range(100):
        with pytest.raises(Denied):
            rates.check(MINE, None)
    clock.now += 0.1
    rates.check(MINE, None)


def test_each_token_has_its_own_rate_wherever_it_is_sent_from(rates: RequestRates):
    assert count(rates, MINE, "203.0.113.1") == 20
    assert count(rates, MINE, "203.0.113.2") == 0
    assert count(rates, OTHER, "203.0.113.1") == 20


def test_invented_tokens_share_the_rate_of_their_address(rates: RequestRates):
    for number in range(20):
        rates.check(f"Bearer lh_{number}", "203.0.113.1")
    with pytest.raises(Denied):
        rates.check("Bearer lh_another", "203.0.113.1")
    with pytest.raises(Denied):
        rates.check(None, "203.0.113.1")
    rates.check("Bearer lh_another", "203.0.113.2")
    rates.check(MINE, "203.0.113.1")


def test_probes_are_counted_apart(rates: RequestRates):
    assert count(rates, None) == 20
    assert count(rates, None, probe=True) == 20


def test_only_so_many_callers_are_remembered(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guard, "MOST_CALLERS", 5)
    rates = RequestRates(1, clock)
    for number in range(50):
        rates.check(None, f"203.0.113.{number}")
        rates.register_token(f"Bearer {number}", str(number))
        assert len(rates._busy_until) <= 5
        assert len(rates._names) <= 5


def test_without_a_rate_everybody_may_ask_as_often_as_they_like(clock: Clock):
    rates = RequestRates(0, clock)
    for _ in range(1000):
        rates.check(None, None)


@pytest.mark.parametrize("rate", [-1, float("inf"), float("nan")])
def test_what_is_no_rate_is_refused(rate: float, app: Leasehold):
    with pytest.raises(InvalidInput, match="rate_limit"):
        router(app, rate_limit=rate)


@pytest.mark.parametrize(
    ("address", "known_as"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("testclient", "testclient"),
        (None, "unknown"),
    ],
)
def test_addresses_that_one_machine_has_are_one(address: str | None, known_as: str):
    assert address_class(address) == known_as


def test_over_http_it_is_a_problem_with_retry_after(app: Leasehold, listen: Callable[[FastAPI], Server]):
    server = listen(create_app(app, rate_limit=0.001))  # one, and then one in a quarter of an hour
    client, other = server.client("read"), server.client("read")
    assert client.get("/v1/jobs").status_code == 200, "counted by its address: nobody has seen the token yet"
    assert client.get("/v1/jobs").status_code == 200, "now it has a rate of its own"
    refused = client.get("/v1/jobs")
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    assert 1 <= int(refused.headers["retry-after"]) <= 1000
    assert other.get("/v1/jobs").status_code == 429, "its address has used up what is new"
    assert client.get("/livez").status_code == 200
    assert client.get("/livez").status_code == 429


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "0" + closing * depth


def test_depth_is_counted_without_a_stack():
    assert not is_deeper(0, 0)
    assert is_deeper([], 0)
    assert not is_deeper([[{"a": 1}]], 3)
    assert is_deeper([1, {"a": [[]]}, 2], 3)


@pytest.mark.parametrize("depth", [DEEPEST_BODY, 500, 5000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_a_body_that_is_nested_too_deep_is_refused_by_its_name(
    admin: httpx2.Client, depth: int, opening: str, closing: str
):
    for args in ('{"task": "add", "args": {"a": %s}}', '{"jobs": [%s]}', "%s"):
        answer = admin.post(
            "/v1/jobs" if "task" in args else "/v1/jobs/batch",
            content=args % nested(depth + 1, opening, closing),
            headers={"Content-Type": "application/json"},
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "too-deep"), answer.text[:200]


def test_what_is_not_too_deep_is_judged_by_what_it_says(admin: httpx2.Client):
    answer = admin.post(
        "/v1/jobs",
        content='{"task": "add", "args": {"a": ' + nested(DEEPEST_BODY - 2) + "}}",
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-arguments")


def test_a_read_that_takes_too_long_is_given_up(
    app: Leasehold, backend: Backend, listen: Callable[[FastAPI], Server]
):
    app.__internals__.store.enqueue([new_job(group=f"g{n}") for n in range(600)])
    server = listen(create_app(app, read_timeout=0.5 if backend.name == "postgres" else 1e-9))
    client = server.client("read")
    if backend.name == "postgres":
        with psycopg.connect(backend.url) as connection:
            connection.execute(f'LOCK TABLE "{backend.schema}".job_group IN ACCESS EXCLUSIVE MODE'.encode())
            answer = client.get("/v1/groups?limit=500")
    else:
        answer = client.get("/v1/groups?limit=500")
    assert (answer.status_code, answer.json()["code"]) == (503, "read-too-slow")
    assert backend.url not in answer.text
    patient = listen(create_app(app)).client("read")
    assert len(patient.get("/v1/groups?limit=500").json()["groups"]) == 500, "the connection is as it was"


def test_a_read_in_another_thread_of_the_process_is_not_hurried(app: Leasehold):
    from leasehold.operations.local import reads_within
    from leasehold.stores.database.read_timeout import longest_read

    seen: list[float | None] = []
    with reads_within(5.0):
        thread = threading.Thread(target=lambda: seen.append(longest_read()))
        thread.start()
        thread.join()
        assert longest_read() == 5.0
    assert (seen, longest_read()) == ([None], None)
