"""Recipes are true: a verb that is said once in the table stands on every surface, without another line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.architecture.sources import PACKAGE, ROOT
from tests.backends import Backend

TOY = """
import contextlib, io, json, os, re
from typing import Annotated

from pydantic import Field

from leasehold import Leasehold
from leasehold.dashboard import create_dashboard
from leasehold.domain.job import Job
from leasehold.domain.states import State
from leasehold.http import create_app
from leasehold.remote.operator import RemoteOperator
from leasehold.remote.transport import Connections, Transport
from leasehold.operations.arguments import Actor, JobId, Reason
from leasehold.operations.verb import Backend, verb
from leasehold.surfaces.cli.main import run
from tests.surfaces.serving import listening
from tests.workers import wait_for

Times = Annotated[int, Field(ge=1, le=9, description="How often.")]


@verb("job.nudge", scope="operate", guard="job", http="POST /v1/jobs/{id}/nudge", bulk=(State.QUEUED,))
def nudge(
    backend: Backend, job_id: JobId, *, times: Times, reason: Reason = None, actor: Actor = None
) -> Job:
    \"\"\"Nudge a job.\"\"\"
    return backend.store.pause(job_id, actor, f"nudged {times} times")


@verb("queue.nudge", scope="operate", guard="queue", http="POST /v1/queues/{name}/nudge")
def nudge_queue(backend: Backend, name: str, *, times: Times = 1, actor: Actor = None) -> bool:
    \"\"\"Nudge a queue.\"\"\"
    return times > 1


app = Leasehold(os.environ["LEASEHOLD_URL"], schema=os.environ["LEASEHOLD_SCHEMA"])


@app.task
def work() -> None: ...


def cli(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(words)
    return code, out.getvalue()


def new(queue="default"):
    return app.enqueue("work", queue=queue).id


found = {}
with app, listening(app, create_app(app)) as server:
    http = server.client("read", "operate")
    over_http, named, listed = new(), new(), new("q1")
    answer = http.post(f"/v1/jobs/{over_http}/nudge", json={"times": 2, "reason": "a test"})
    found["http"] = answer.status_code, answer.json()["reason"]
    found["openapi"] = http.get("/openapi.json").json()["paths"]["/v1/jobs/{id}/nudge"]["post"]
    code, text = cli("jobs", "nudge", named, "--times", "3", "--actor", "ann", "--json")
    found["by id"] = code, json.loads(text)["state"], app.get(named).reason
    code, text = cli("jobs", "nudge", "--queue", "q1", "--times", "4", "--yes", "--json")
    found["by filter"] = code, [one["id"] == listed for one in json.loads(text)], app.get(listed).reason
    found["usage"] = cli("jobs", "nudge", new(), "--fresh")[0]
    in_bulk = new("q2")
    bulk = {"verb": "nudge", "queue": "q2", "dry_run": False}
    found["without times"] = http.post("/v1/jobs/bulk", json=bulk).json()["errors"][0]["pointer"]
    done = http.post("/v1/jobs/bulk", json={**bulk, "times": 6}).json()
    found["bulk"] = done["changed"], app.get(in_bulk).reason
    over_remote = new()
    connections = Connections(server.url, server.token("read", "operate"), 30)
    row = RemoteOperator(Transport(connections, None)).call(nudge, over_remote, times=5)
    connections.close()
    found["remote"] = row.id == over_remote, row.state, row.reason
    found["help"] = cli("jobs", "--help")[1], cli("queues", "--help")[1]
    code, text = cli("queues", "nudge", "q1", "--times", "2", "--json")
    found["queue"] = code, json.loads(text)
    found["queue in words"] = cli("queues", "nudge", "q1")
    found["audit"] = [(row.verb, row.target, row.detail) for row in app.audit(verb="job.nudge").entries]
    found["ids"] = [over_remote, in_bulk, listed, named, over_http]
    found["report"] = http.get("/openapi.json").json()["components"]["schemas"]["BulkReport"]["properties"]
with app, listening(app, create_dashboard(app)) as server:
    browser, on_page = server.client("read", "operate"), new("q3")
    found["link"] = "verb=nudge" in browser.get("/jobs").text
    page = browser.get("/bulk", params={"verb": "nudge", "queue": "q3"}).text
    found["fields"] = re.findall(r'<input id="bulk-(\\w+)"[^>]*?(required)?>', page)
    form = {"verb": "nudge", "criteria": "queue=q3", "matched": "1", "times": "7"}
    browser.post("/do/bulk.start", data=form, headers={"Origin": server.url})
    wait_for(lambda: app.get(on_page).state == "paused")
    found["page"] = app.get(on_page).reason
print(json.dumps(found))
"""


def ran(source: str, backend: Backend, folder: Path) -> dict[str, Any]:
    """What a program has found: in a process of its own, so that no other test sees what it adds."""
    program = folder / "toy.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env={
            "PYTHONPATH": f"{folder}:{ROOT}",
            "LEASEHOLD_URL": backend.url,
            "LEASEHOLD_SCHEMA": backend.schema,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_new_verb_is_on_http_the_command_line_remote_the_pages_in_bulk_and_in_the_audit(
    backend: Backend, tmp_path: Path
):
    toy = ran(TOY, backend, tmp_path)
    assert toy["http"] == [200, "nudged 2 times"]
    assert (toy["openapi"]["summary"], toy["openapi"]["description"]) == ("Nudge Job", "Nudge a job.")
    assert toy["by id"] == [0, "paused", "nudged 3 times"]
    assert toy["by filter"] == [0, [True], "nudged 4 times"]
    assert toy["usage"] == 2, "it has the options of its own verb, and no others"
    assert "nudge" in toy["report"]["verb"]["enum"]
    assert (toy["without times"], toy["bulk"]) == ("/times", [1, "nudged 6 times"])
    assert toy["remote"] == [True, "paused", "nudged 5 times"]
    assert [verb for verb, _, _ in toy["audit"]] == ["job.nudge"] * 5
    assert [target for _, target, _ in toy["audit"]] == toy["ids"]
    assert toy["audit"][3][2] == {"times": 3}
    in_jobs, in_queues = toy["help"]
    assert "Nudge a job." in in_jobs
    assert "Nudge a queue." in in_queues
    assert toy["queue"] == [0, {"name": "q1", "times": 2, "changed": True}]
    assert toy["queue in words"] == [0, "queue.nudge q1: nothing to do\n"]
    assert (toy["link"], toy["page"]) == (True, "nudged 7 times")
    assert toy["fields"] == [["times", "required"], ["reason", ""]]


FIELD = """    updated_at: datetime = field(compare=False)
"""
SHOW = """
import contextlib, io, json, os

from leasehold import Leasehold
from leasehold.http import create_app
from leasehold.remote import Remote
from leasehold.surfaces.cli.main import run
from tests.surfaces.serving import listening

app = Leasehold(os.environ["LEASEHOLD_URL"], schema=os.environ["LEASEHOLD_SCHEMA"])


@app.task
def work() -> None: ...


with app, listening(app, create_app(app)) as server:
    job = app.enqueue("work")
    http = server.client("read", "operate")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(["jobs", "show", job.id, "--json"])
    with Remote(server.url, token=server.token("read")) as remote:
        row = remote.get(job.id).__row__
    paths = http.get("/openapi.json").json()["components"]["schemas"]["Job"]["properties"]
    found = {
        "http": http.get(f"/v1/jobs/{job.id}").json()["toy"],
        "a verb": http.post(f"/v1/jobs/{job.id}/pause").json()["toy"],
        "openapi": paths["toy"]["description"],
        "--json": json.loads(out.getvalue())["toy"],
        "remote": row.toy,
    }
print(json.dumps(found))
"""


def test_a_new_field_of_a_job_is_in_every_json(backend: Backend, tmp_path: Path):
    """In a copy of the package, with one line more."""
    shutil.copytree(PACKAGE, tmp_path / "leasehold", ignore=shutil.ignore_patterns("__pycache__"))
    records = tmp_path / "leasehold" / "domain" / "job.py"
    source = records.read_text(encoding="utf-8")
    assert source.count(FIELD) == 1
    toy = '    toy: int = 7\n    """A toy."""\n'
    records.write_text(source.replace(FIELD, toy + FIELD), encoding="utf-8")
    found = ran(SHOW, backend, tmp_path)
    assert found == {"http": 7, "a verb": 7, "openapi": "A toy.", "--json": 7, "remote": 7}
