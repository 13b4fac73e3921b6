"""The agent server from outside: real server processes, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest

from examples.agent_server.conftest import TOKEN_LIMIT
from examples.agent_server.outside import Answer, Fleet, Server, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("agent_server")]  # they share two servers a database

LONG = {"text": "long", "seconds": 600}
INTERRUPTED = "Job was interrupted by user"


def running(server: Server, target: str, *turns: Answer, tenant: str = "acme") -> str:
    job = server.create(target, *turns, tenant=tenant)
    server.wait_for(target, job, "RUNNING", tenant=tenant)
    return job


def holder_first(job: Answer, one: Server, two: Server) -> tuple[Server, Server]:
    assert job["lease_owner"] in (one.worker_id, two.worker_id)
    return (one, two) if job["lease_owner"] == one.worker_id else (two, one)


def let_both_claim(one: Server, two: Server, name: str) -> None:
    """When both have run something that came later, what is still QUEUED is held back, not merely late."""
    seen: set[str] = set()
    requested = itertools.cycle((one, two))  # who stores a job is likely to claim it

    def ran_by_both() -> bool:
        server = next(requested)
        job = running(server, name, LONG)
        seen.add(server.job(name, job)["lease_owner"])
        server.post(name, job, "cancel")
        server.wait_for(name, job, "PAUSED")
        assert server.post(name, job, "cancel")["status"] == "CANCELED"
        return seen == {one.worker_id, two.worker_id}

    until(ran_by_both, lambda: f"only {seen} claim")


# --- tenants, fields, statuses --------------------------------------------------------------------------------------


def test_two_tenants_with_one_target_id(one: Server, two: Server) -> None:
    theirs = running(one, "shared", LONG)
    one.create("shared", {}, tenant="acme")
    ours = two.create("shared", {"text": "hello"}, tenant="globex")
    assert two.wait_for("shared", ours, "SUCCESS", tenant="globex")["result"] == ["hello"]
    assert one.job("shared", theirs)["status"] == "RUNNING"
    assert [job["id"] for job in one.ask("GET", "/targets/shared/jobs/", "globex")[1]["jobs"]] == [ours]
    for tenant, path in (
        ("globex", f"shared/jobs/{theirs}/"),
        ("acme", f"other/jobs/{theirs}/"),
        ("nobody", "shared/jobs/"),
    ):
        assert one.ask("GET", f"/targets/{path}", tenant)[0] == 404
    assert one.ask("GET", "/targets/shared/jobs/", None)[0] == 400
    assert one.ask("POST", f"/targets/shared/jobs/{theirs}/cancel/", "globex")[0] == 404


def test_the_fields_of_a_running_job(one: Server, two: Server) -> None:
    job_id = running(one, "fields", LONG)
    job = two.job("fields", job_id)
    assert job["lease_owner"] in (one.worker_id, two.worker_id)
    assert (job["tenant"], job["target_id"], job["attempt"]) == ("acme", "fields", 1)
    assert (job["cancel_requested"], job["message"], job["result"]) == (False, None, None)
    expires = dt.datetime.fromisoformat(job["lease_expires_at"])
    assert expires > dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)

    def renewed() -> bool:
        return dt.datetime.fromisoformat(one.job("fields", job_id)["lease_expires_at"]) > expires

    until(renewed, lambda: "the lease is not renewed")
    (listed,) = one.ask("GET", "/targets/fields/jobs", "acme")[1]["jobs"]
    assert (listed["id"], listed["status"], listed["lease_owner"]) == (job_id, "RUNNING", job["lease_owner"])


def test_pending_until_enqueued_and_oldest_first(one: Server, two: Server, two_servers: Fleet) -> None:
    held = one.create("order", {"text": "held"}, enqueue=False)
    first = running(one, "order", {"text": "first"}, LONG)
    jobs = [one.create("order", {"text": name}) for name in ("second", "third", "fourth")]
    assert one.job("order", held)["status"] == "PENDING"
    assert two.post("order", held, "enqueue")["status"] == "QUEUED"
    assert two.ask("POST", f"/targets/order/jobs/{held}/enqueue", "acme")[0] == 409, "it is QUEUED already"
    two.post("order", first, "cancel")
    two.wait_for("order", first, "PAUSED")
    assert two.post("order", first, "cancel")["status"] == "CANCELED"
    one.wait_for("order", held, "SUCCESS")
    said = [line["text"] for line in two_servers.lines() if line["target_id"] == "order"]
    assert said == ["first", "long", "second", "third", "fourth", "held"]
    assert [one.job("order", job)["status"] for job in jobs] == ["SUCCESS"] * 3


def test_what_does_not_run_is_canceled(one: Server, two: Server) -> None:
    first = running(one, "canceled", LONG)
    pending, queued = one.create("canceled", {}, enqueue=False), one.create("canceled", {})
    for job in (pending, queued):
        canceled = two.post("canceled", job, "cancel")
        assert (canceled["status"], canceled["attempt"]) == ("CANCELED", 0)
        assert one.ask("POST", f"/targets/canceled/jobs/{job}/resume/", "acme")[0] == 409
    assert one.job("canceled", first)["status"] == "RUNNING"


# --- interrupt, resume, resolve -------------------------------------------------------------------------------------


def test_an_interrupt_from_the_other_process_pauses_and_halts_the_target(one: Server, two: Server) -> None:
    job_id = running(one, "halted", LONG)
    behind = one.create("halted", {"text": "behind"})
    holder, other = holder_first(one.job("halted", job_id), one, two)
    told = other.post("halted", job_id, "cancel")
    assert (told["status"], told["cancel_requested"]) in (("RUNNING", True), ("PAUSED", False))
    paused = holder.wait_for("halted", job_id, "PAUSED")
    assert (paused["message"], paused["cancel_requested"]) == (INTERRUPTED, False)
    assert (paused["lease_owner"], paused["lease_expires_at"]) == (None, None)
    let_both_claim(one, two, "halted-fence")
    assert two.job("halted", behind)["status"] == "QUEUED"

    assert other.post("halted", job_id, "resume")["status"] in ("QUEUED", "RUNNING")
    again = one.wait_for("halted", job_id, "RUNNING")
    assert (again["attempt"], again["cancel_requested"], again["message"]) == (2, False, None)
    assert one.job("halted", behind)["status"] == "QUEUED", "the resumed job keeps its place"
    other.post("halted", job_id, "cancel")
    one.wait_for("halted", job_id, "PAUSED")
    assert one.ask("POST", f"/targets/halted/jobs/{job_id}/resolve/", "acme")[0] == 409, "PAUSED is not ERROR"
    assert one.post("halted", job_id, "cancel")["status"] == "CANCELED"
    assert one.wait_for("halted", behind, "SUCCESS")["result"] == ["behind"]


@pytest.mark.parametrize("slash", ["/", ""])
@pytest.mark.parametrize("path", ["/targets/{target}/jobs/{job}/resume", "/jobs/{job}/resume"])
def test_both_spellings_of_resume(one: Server, path: str, slash: str) -> None:
    """The document's text names the target, its diagram does not."""
    target = f"spelling{len(path)}{len(slash)}"
    job = running(one, target, LONG)
    one.post(target, job, "cancel")
    one.wait_for(target, job, "PAUSED")
    requested = path.format(target=target, job=job) + slash
    assert one.ask("POST", requested, "globex")[0] == 404, "it is not theirs"
    status, resumed = one.ask("POST", requested, "acme")
    assert (status, resumed["id"], resumed["target_id"]) == (200, job, target)
    assert one.wait_for(target, job, "RUNNING")["attempt"] == 2


def test_an_interrupt_is_decided_under_the_lock(one: Server, two: Server) -> None:
    """The job is being claimed while it is interrupted. One that has begun is paused, never canceled."""
    jobs = {f"race{number}": one.create(f"race{number}", LONG) for number in range(12)}
    for target, job in jobs.items():
        two.post(target, job, "cancel")
    ends = [one.wait_for(target, job, "PAUSED", "CANCELED") for target, job in jobs.items()]
    assert {(end["status"], end["attempt"], end["message"]) for end in ends} <= {
        ("PAUSED", 1, INTERRUPTED),
        ("CANCELED", 0, INTERRUPTED),
    }


def test_an_unexpected_exception_is_an_error_and_resolve_lets_the_target_go_on(
    one: Server, two: Server
) -> None:
    failed, behind = one.create("broken", {"error": "boom"}), one.create("broken", {"text": "behind"})
    error = two.wait_for("broken", failed, "ERROR")
    assert (error["message"], error["attempt"], error["lease_owner"]) == ("RuntimeError: boom", 1, None)
    let_both_claim(one, two, "broken-fence")
    assert one.job("broken", behind)["status"] == "QUEUED"
    assert one.post("broken", failed, "resume")["status"] in ("QUEUED", "RUNNING", "ERROR")
    again = until(
        lambda: (job := one.job("broken", failed))["attempt"] == 2 and job["status"] == "ERROR" and job,
        lambda: "it was not run again",
    )
    assert again["message"] == "RuntimeError: boom"
    assert one.job("broken", behind)["status"] == "QUEUED"
    assert one.post("broken", failed, "resolve")["status"] == "ERROR", "it stays on record"
    assert two.wait_for("broken", behind, "SUCCESS")["result"] == ["behind"]
    assert one.ask("POST", f"/targets/broken/jobs/{behind}/resume", "acme")[0] == 409


# --- the token limit ------------------------------------------------------------------------------------------------


def test_as_many_tokens_as_the_limit_are_paused_and_counted_anew(one: Server, two: Server) -> None:
    job = one.create("equal", {"tokens": TOKEN_LIMIT}, LONG)
    for attempt in (1, 2, 3):

        def used(attempt: int = attempt) -> bool:
            found = one.job("equal", job)
            return (found["attempt"], found["token_usage"]) == (attempt, TOKEN_LIMIT)

        until(used, lambda: "it should have used its tokens")
        two.post("equal", job, "cancel")
        paused = one.wait_for("equal", job, "PAUSED")
        assert (paused["message"], paused["token_usage"]) == (INTERRUPTED, TOKEN_LIMIT)
        assert (paused["token_limit"], paused["attempt"]) == (TOKEN_LIMIT, attempt)
        one.post("equal", job, "resume")


def test_one_token_over_the_limit_is_an_error(one: Server, two: Server) -> None:
    over = one.create("over", {"tokens": TOKEN_LIMIT}, {"tokens": 1}, {"text": "never"})
    behind = one.create("over", {})
    error = two.wait_for("over", over, "ERROR")
    assert error["message"] == "Token limit exceeded: 1001 tokens used, TOKEN_LIMIT is 1000"
    assert (error["token_usage"], error["cancel_requested"]) == (TOKEN_LIMIT + 1, False)
    assert one.job("over", behind)["status"] == "QUEUED"


def test_an_interrupt_over_the_limit_is_an_error(one: Server, two: Server) -> None:
    job = running(one, "greedy", {"tokens": TOKEN_LIMIT + 1, "seconds": 600})
    until(lambda: one.job("greedy", job)["token_usage"] > TOKEN_LIMIT, lambda: "it used nothing")
    two.post("greedy", job, "cancel")
    error = one.wait_for("greedy", job, "ERROR")
    assert error["message"] == "Token limit exceeded: 1001 tokens used, TOKEN_LIMIT is 1000"
    assert error["cancel_requested"] is False
