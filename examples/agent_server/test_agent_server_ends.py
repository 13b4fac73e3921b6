"""How servers end: killed, or told to. Every process of a test is its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
from collections import defaultdict

import pytest

from examples.agent_server.conftest import TOKEN_LIMIT
from examples.agent_server.outside import PATIENCE, ROOT, Answer, Fleet, Server, until
from examples.measured import KILLS, database_of

pytestmark = pytest.mark.slow

TURNS = [{"text": str(number), "seconds": 0.2} for number in range(8)]


class OpenRequest:
    """A POST whose body has not been sent yet: the server waits for it, also while it ends."""

    def __init__(self, server: Server, target: str) -> None:
        self._body = json.dumps({"turns": [{"text": "late"}]}).encode()
        place = urllib.parse.urlsplit(server.url)
        self._connection = socket.create_connection((place.hostname, place.port), PATIENCE)
        head = (
            f"POST /targets/{target}/jobs/ HTTP/1.1\r\nHost: {place.netloc}\r\nX-Tenant: acme\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(self._body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        self._connection.sendall(head.encode())
        assert b"100 Continue" in self._connection.recv(1000), "the server asks for the body"

    def finish(self) -> Answer:
        self._connection.sendall(self._body)
        answer = b""
        while more := self._connection.recv(65536):
            answer += more
        self._connection.close()
        assert answer.startswith(b"HTTP/1.1 201"), answer
        return json.loads(answer.partition(b"\r\n\r\n")[2])


# --- kill -9 --------------------------------------------------------------------------------------------------------


def test_kill_9_is_an_error_and_resume_executes_again(servers: Fleet) -> None:
    one, two = servers.start(WORKER_ID="one"), servers.start(WORKER_ID="two")
    job = one.create("target", {"text": "begun"}, {"seconds": 600})
    behind = one.create("target", {"text": "behind"})
    owner = one.wait_for("target", job, "RUNNING")["lease_owner"]
    until(lambda: len(servers.lines()) == 2, lambda: "it has not begun")
    victim, other = (one, two) if owner == one.worker_id else (two, one)
    assert owner.startswith(("one:", "two:")), "WORKER_ID is its beginning"
    victim.kill()
    assert other.job("target", job)["status"] == "RUNNING", "nobody knows yet"
    error = other.wait_for("target", job, "ERROR")
    assert (error["lease_owner"], error["lease_expires_at"], error["attempt"]) == (None, None, 1)
    assert "lease was lost" in error["message"]
    assert other.job("target", behind)["status"] == "QUEUED"
    other.post("target", job, "resume")
    again = other.wait_for("target", job, "RUNNING")
    assert (again["lease_owner"], again["attempt"]) == (other.worker_id, 2)
    until(lambda: len(servers.lines()) == 4, lambda: "it has not begun again")
    assert [line["text"] for line in servers.lines()] == ["begun", "", "begun", ""]
    assert other.job("target", behind)["status"] == "QUEUED"


@pytest.mark.parametrize("servers", ["sqlite"], indirect=True)
def test_stale_jobs_are_expired_by_hand_where_no_server_lives(servers: Fleet) -> None:
    server = servers.start()
    job = server.create("target", {"seconds": 600})
    server.wait_for("target", job, "RUNNING")
    server.kill()
    script = f"""
import time
from examples.agent_server.service import expire_stale_running_jobs, get_job
while not expire_stale_running_jobs("acme"):
    time.sleep(0.1)
print(get_job("acme", "target", "{job}")["status"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **servers.settings},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.returncode) == ("ERROR\n", 0), done.stderr


@pytest.mark.parametrize("servers", ["postgres"], indirect=True)
def test_servers_are_killed_again_and_again(servers: Fleet) -> None:
    kill_servers(servers, times=5)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_servers_are_killed_twenty_times(servers: Fleet) -> None:
    began = time.monotonic()
    attempts = kill_servers(servers, times=20)
    minutes = round((time.monotonic() - began) / 60, 1)
    database = database_of(servers.settings["LEASEHOLD_URL"])
    runs, jobs = sum(attempts), len(attempts)
    KILLS.put("agent_server", database, 20, jobs, runs, runs - jobs, minutes)  # all but the last were lost


def kill_servers(servers: Fleet, times: int) -> list[int]:
    """Somebody resumes what became ERROR. Nothing is lost, and no two runs of a target overlap. Gives back how many
    attempts each job took."""
    alive = [servers.start(), servers.start()]
    jobs = [
        (target, alive[0].create(target, *TURNS, tenant=tenant), tenant)
        for target, tenant in (("a", "acme"), ("b", "acme"), ("c", "acme"), ("a", "globex"))
        for _ in range(1 + times // 4)
    ]
    for _ in range(times):
        victim = a_holder(alive, jobs)
        victim.kill()
        alive = [server for server in alive if server is not victim] + [servers.start()]
    until(lambda: holders(alive, jobs) is None, lambda: "some are not done")

    runs: dict[str, list[str]] = defaultdict(list)
    said: dict[str, list[str]] = defaultdict(list)
    for line in servers.lines():
        run = f"{line['job']}/{line['attempt']}"
        said[run].append(line["text"])
        of_target = runs[f"{line['tenant']}/{line['target_id']}"]
        if not of_target or of_target[-1] != run:
            of_target.append(run)
    for target, order in runs.items():
        assert len(order) == len(set(order)), f"{target}: a run went on after the next had begun"
        mine = [job for name, job, tenant in jobs if f"{tenant}/{name}" == target]
        in_turn = [run.partition("/")[0] for run in order]
        assert in_turn == sorted(in_turn, key=mine.index), (
            f"{target}: a job began before the one ahead had ended"
        )
    attempts = []
    for target, job, tenant in jobs:
        done = alive[0].job(target, job, tenant)
        assert (done["status"], done["result"]) == ("SUCCESS", [turn["text"] for turn in TURNS])
        assert said[f"{job}/{done['attempt']}"] == done["result"], "the last run took every turn, once"
        attempts.append(int(done["attempt"]))
    return attempts


def a_holder(alive: list[Server], jobs: list[tuple[str, str, str]]) -> Server:
    return until(lambda: holders(alive, jobs), lambda: "nobody runs anything")[0]


def holders(alive: list[Server], jobs: list[tuple[str, str, str]]) -> list[Server] | None:
    """The servers that run something, after whatever is ERROR was resumed. None: all jobs are done."""
    found = [(target, alive[0].job(target, job, tenant), tenant) for target, job, tenant in jobs]
    for target, job, tenant in found:
        if job["status"] == "ERROR":
            assert "lease was lost" in job["message"]
            alive[0].post(target, job["id"], "resume", tenant)
    if all(job["status"] == "SUCCESS" for _, job, _ in found):
        return None
    owners = {job["lease_owner"] for _, job, _ in found}
    return [server for server in alive if server.worker_id in owners]


# --- drain ----------------------------------------------------------------------------------------------------------


def test_a_drain_while_requests_are_open_and_jobs_run(servers: Fleet) -> None:
    """The server claims nothing from SIGTERM on, though it still answers what was asked before; then the grace runs,
    and what has not ended by then is PAUSED, or ERROR when it is over the token limit."""
    old = servers.start(SHUTDOWN_GRACE_PERIOD_SECONDS="1")
    slow = old.create("slow", {"tokens": TOKEN_LIMIT}, {"seconds": 600})
    greedy = old.create("greedy", {"tokens": TOKEN_LIMIT + 1, "seconds": 600})
    for target, job, tokens in (("slow", slow, 1000), ("greedy", greedy, 1001)):
        until(lambda t=target, j=job, n=tokens: old.job(t, j)["token_usage"] == n, lambda: "too few tokens")
    first, second = OpenRequest(old, "late"), OpenRequest(old, "later")
    quick = old.create("quick", {"seconds": 3}, {"text": "quick has ended"})
    behind = old.create("quick", {"text": "behind"})
    # A job that was claimed and has not begun would be handed back.
    until(lambda: any(line["job"] == quick for line in servers.lines()), lambda: "quick has not begun")
    old.terminate()
    until(lambda: old.says("SIGTERM: no new jobs"), lambda: "the worker has not heard it")
    late = first.finish()
    assert late["status"] == "QUEUED"
    until(lambda: any(line["text"] == "quick has ended" for line in servers.lines()), lambda: "quick goes on")
    assert old.process.poll() is None, "a request is open"
    later = second.finish()
    assert later["status"] == "QUEUED"
    assert old.wait() in (0, -15)

    new = servers.start()
    done = [("quick", quick), ("quick", behind), ("late", late["id"]), ("later", later["id"])]
    for target, job in done:
        assert new.wait_for(target, job, "SUCCESS")["attempt"] == 1
    paused, error = new.job("slow", slow), new.job("greedy", greedy)
    assert (paused["status"], paused["message"]) == ("PAUSED", "Job was interrupted by user")
    assert (error["status"], error["token_usage"]) == ("ERROR", TOKEN_LIMIT + 1)
    assert error["message"] == "Token limit exceeded: 1001 tokens used, TOKEN_LIMIT is 1000"
    ran_by = {line["job"]: line["worker"] for line in servers.lines()}
    assert [ran_by[job] for _, job in done] == [old.worker_id] + 3 * [new.worker_id]


@pytest.mark.parametrize("servers", ["sqlite"], indirect=True)
def test_a_drain_waits_for_what_ends_in_time(servers: Fleet) -> None:
    old = servers.start()  # five minutes
    job = old.create("target", {"text": "begun"}, {"seconds": 2, "text": "done"})
    until(lambda: len(servers.lines()) == 2, lambda: "it has not begun")
    old.terminate()
    assert old.wait() in (0, -15)
    new = servers.start()
    done = new.job("target", job)
    assert (done["status"], done["attempt"], done["result"]) == ("SUCCESS", 1, ["begun", "done"])
    assert {line["worker"] for line in servers.lines()} == {old.worker_id}
