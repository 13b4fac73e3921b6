"""docs/guides/flask.md, driven from outside: the page's own app under gunicorn, with a worker of `flask leasehold`."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold import Leasehold, State
from tests.backends import Backend
from tests.contrib.guide import PATIENCE, Project, ask, ended, wait_for

pytestmark = [pytest.mark.slow(6), pytest.mark.one_store("postgres"), pytest.mark.timeout(600)]

FLASK = ("-m", "flask", "--app", "shop", "leasehold")
NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def project(backend: Backend, tmp_path: Path) -> Project:
    configured = {"FLASK_LEASEHOLD_URL": backend.url, "FLASK_LEASEHOLD_SCHEMA": backend.schema}
    made = Project(tmp_path, configured)
    made.lay_out("guides/flask.md")
    return made


def run_all(project: Project, app: Leasehold, *tasks: str) -> list[object]:
    """Enqueue these, run them one after the other, and give their results."""
    for name in tasks:
        if name not in {task.name for task in app.tasks.list()}:
            app.task(name=name)(lambda: None)
    jobs = [app.enqueue(name) for name in tasks]
    project.python(*FLASK, "worker", "--burst", "--threads", "1", "--concurrency", "1")
    return [job.result(timeout=0) for job in jobs]


def test_orders_of_a_preloaded_server_are_shipped_by_a_worker(project, app: Leasehold):
    gunicorn = ("-m", "gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "shop:create_app()")
    with project.serves(*gunicorn) as url:
        made = [ask(f"{url}/orders", {"item": f"tea {n}"}) for n in range(6)]
        assert [status for status, _ in made] == [202] * 6
        ids = [said["id"] for _, said in made]
        assert {app.get(one).state for one in ids} == {State.QUEUED}
        assert ask(f"{url}/orders/{ids[0]}") == (202, {"state": "queued", "progress": ""})
        with project.stays(*FLASK, "worker"):
            for n, one in enumerate(ids):
                said = ended(f"{url}/orders/{one}")
                assert said["result"] == f"tea {n} is on its way from the corner shop"
            _, late = ask(f"{url}/orders", {"item": "milk"})  # while the worker waits
            assert ended(f"{url}/orders/{late['id']}")["state"] == "succeeded"
    assert app.count()[State.SUCCEEDED] == 7


def test_at_sigterm_the_running_job_ends_and_the_next_one_is_left(project, app: Leasehold):
    @app.task(name="ship")
    def ship(item: str, parts: int = 1) -> str: ...

    running = ship.enqueue("piano", 30)
    with project.starts(*FLASK, "worker") as (process, log):
        wait_for(running.progress, log.read_text)  # a job that was only claimed is handed back
        process.terminate()
        wait_for(lambda: "draining: no new jobs" in log.read_text(), log.read_text)
        later = ship.enqueue("stool")
        assert process.wait(PATIENCE) == 0, log.read_text()
    assert (running.refresh().state, running.attempt) == (State.SUCCEEDED, 1)
    assert later.refresh().state is State.QUEUED


# -- the command -------------------------------------------------------------------------------------------------------
def test_the_command_knows_the_app_and_keeps_its_exit_codes(project, app: Leasehold):
    job = project.python(*FLASK, "jobs", "enqueue", "ship", '{"item": "tea"}').split()[-1]
    assert app.get(job).args["item"] == "tea"
    elsewhere = {"LEASEHOLD_URL": f"sqlite:///{project.folder}/elsewhere.db"}
    assert job in project.python(*FLASK, "jobs", "--json", **elsewhere), "the configuration says where"
    assert "no job" in project.python(*FLASK, "jobs", "show", NOBODY, code=3)
    assert "Run jobs:" in project.python(*FLASK, code=2)
    assert "--burst" in project.python(*FLASK, "worker", "--help")
    assert "leasehold" in project.python("-m", "flask", "--app", "shop", "--help")
    # Without `flask`: FLASK_APP names the app that is made.
    ours = ("-m", "leasehold", "worker", "leasehold.contrib.flask:app", "--burst")
    project.python(*ours, FLASK_APP="shop")
    assert app.get(job).result(timeout=0).startswith("tea is on its way")
    assert "Could not locate a Flask application" in project.python(*ours, code=2)
    assert "bound to no Flask app" in project.python("-m", "leasehold", "worker", "shop.jobs:jobs", code=2)


PLAIN = """
from flask import Flask
from leasehold.contrib.flask import FlaskLeasehold

app = Flask(__name__)
jobs = FlaskLeasehold(app)

@jobs.task
def name() -> str:
    from flask import current_app
    return current_app.name
"""


def test_dev_makes_the_app_again_on_the_same_database(project, backend: Backend, app: Leasehold):
    """Its server and worker are a process of their own. Here the environment alone says where the jobs are."""
    (project.folder / "plain.py").write_text(PLAIN)
    project.environment |= {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema}

    @app.task(name="name")
    def name() -> str: ...

    job = name.enqueue()
    with project.stays("-m", "flask", "--app", "plain", "leasehold", "dev", "--no-reload", "--port", "0"):
        assert job.result(timeout=PATIENCE) == "plain"
    with project.stays("-m", "flask", "--app", "plain", "leasehold", "dev", "--port", "0"):
        assert name.enqueue().result(timeout=PATIENCE) == "plain"


# -- contexts ----------------------------------------------------------------------------------------------------------
PROBE = """
from flask import current_app, g

from shop.jobs import jobs

torn_down = []

def watch(app):
    app.teardown_appcontext(lambda error: torn_down.append(type(error).__name__))

@jobs.task
def look() -> dict:
    had, g.seen = "seen" in g, True
    return {"app": current_app.name, "had": had}

@jobs.task
async def alook() -> dict:
    return look()

@jobs.task(run_in="process")
def alone() -> dict:
    return look()

@jobs.task
def ended() -> list:
    return list(torn_down)

@jobs.task
async def aended() -> list:
    return list(torn_down)
"""


def test_every_run_has_an_app_context_of_its_own(project, app: Leasehold):
    (project.folder / "shop/probe.py").write_text(PROBE)
    init = project.folder / "shop/__init__.py"
    init.write_text(
        init.read_text().replace(
            "    return app\n", "    from shop import probe\n    probe.watch(app)\n    return app\n"
        )
    )
    context = {"app": "shop", "had": False}
    # The contexts before its own are gone when the last one of each colour runs, after the others.
    gone = ["NoneType", "NoneType"]
    assert run_all(project, app, "look", "look", "ended", "alone") == [context, context, gone, context]
    assert run_all(project, app, "alook", "alook", "aended") == [context, context, gone]


def test_the_pages_own_tests_pass(project, app: Leasehold):
    assert "1 passed" in project.python("-m", "pytest", "-q", "test_orders.py")
    assert app.jobs().jobs == [], "nothing has reached the database of the configuration"
