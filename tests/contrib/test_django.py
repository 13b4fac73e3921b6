"""docs/guides/django.md, driven from outside: the page's own project under gunicorn, with a worker of `manage.py`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.contrib.guide import Project, ask, ended

pytestmark = [pytest.mark.slow(6), pytest.mark.one_store("postgres"), pytest.mark.timeout(600)]


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """The project of the page, with its tables."""
    environment = {"DJANGO_SETTINGS_MODULE": "mysite.settings"}
    name = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        name = f"shop_{time.time_ns()}"
        server.create_database(name)
        environment = {
            "DJANGO_SETTINGS_MODULE": "mysite.production",
            "ALLOWED_HOSTS": "127.0.0.1,testserver",
            "DB_NAME": name,
            "DB_USER": "postgres",
            "DB_PASSWORD": "not@sked/for?",
            "DB_HOST": "127.0.0.1",
            "DB_PORT": str(server.port),
        }
    project = Project(tmp_path, environment)
    project.lay_out("guides/django.md", setup="django-admin startproject")
    yield project
    if name is not None:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def manage(project: Project, *arguments: str, code: int = 0, **environment: str) -> str:
    return project.python("manage.py", *arguments, code=code, **environment)


TABLES = """
import django
from django.core.management import call_command

django.setup()
call_command("makemigrations", "shop")
call_command("migrate")
call_command("leasehold", "db", "upgrade")
"""
RUN = """
import json, sys
import django
from django.core.management import call_command

django.setup()
from leasehold.contrib.django import app

jobs = [app.enqueue(task, {}) for task in sys.argv[1:]]
try:
    call_command("leasehold", "worker", "--burst", "--threads", "1", "--concurrency", "1")
except SystemExit as left:
    assert left.code == 0
print(json.dumps([job.result(timeout=0) for job in jobs]))
"""


def set_up(project: Project, probe: str = "", settings: str = "") -> None:
    """Make the tables; with `probe`, more tasks, and with `settings`, more lines for the settings."""
    if probe:
        (project.folder / "shop/probe.py").write_text(probe)
        settings += "\nLEASEHOLD = globals().get('LEASEHOLD', {}) | {'TASKS': ['tasks', 'probe']}\n"
    add_settings(project, settings)
    project.python("-c", TABLES)


def add_settings(project: Project, lines: str) -> None:
    module = project.environment["DJANGO_SETTINGS_MODULE"]
    with (project.folder / f"{module.replace('.', '/')}.py").open("a") as file:
        file.write(lines)


def jobs(project: Project) -> list[dict]:
    return json.loads(manage(project, "leasehold", "jobs", "--json"))


def results(project: Project, *tasks: str) -> list:
    """Of these tasks, run one after the other in a process of one thread."""
    return json.loads(project.python("-c", RUN, *tasks).splitlines()[-1])


# -- over HTTP ---------------------------------------------------------------------------------------------------------
def test_an_order_and_its_job_are_committed_or_rolled_back_together_and_a_worker_ships_it(project):
    set_up(project)
    with project.serves("-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:0", "mysite.wsgi") as url:
        status, bought = ask(f"{url}/buy/", {"item": "tea"})
        assert status == 202
        assert ask(f"{url}/jobs/{bought['job']}/") == (200, {"state": "queued", "result": None})
        assert ask(f"{url}/buy/", {"item": "unicorn"}) == (409, {"error": "out of stock"})
        shop = {"orders": [{"id": bought["order"], "item": "tea", "shipped": False}]}
        assert ask(f"{url}/orders/") == (200, shop)
        assert [job["id"] for job in jobs(project)] == [bought["job"]], "the job of the unicorn is gone too"
        assert ask(f"{url}/jobs/00000000-0000-7000-8000-000000000000/")[0] == 404
        with project.stays("manage.py", "leasehold", "worker"):
            assert ended(f"{url}/jobs/{bought['job']}/") == {
                "state": "succeeded",
                "result": "tea is on its way",
            }
            _, again = ask(f"{url}/buy/", {"item": "milk"})  # committed while the worker waits
            assert ended(f"{url}/jobs/{again['job']}/") == {
                "state": "succeeded",
                "result": "milk is on its way",
            }
        _, found = ask(f"{url}/orders/")
        assert [order["shipped"] for order in found["orders"]] == [True, True]


ATOMIC = "\nDATABASES['default']['ATOMIC_REQUESTS'] = True\n"


def test_a_request_that_fails_takes_its_jobs_along(project):
    """With ATOMIC_REQUESTS the whole view is one transaction; an inner block is a savepoint of it."""
    views = project.folder / "shop/views.py"
    views.write_text(
        views.read_text().replace("status=202)", "status=202 if order.item != 'glass' else 1 / 0)")
    )
    set_up(project, settings=ATOMIC)
    with project.serves("-m", "gunicorn", "--preload", "--bind", "127.0.0.1:0", "mysite.wsgi") as url:
        with pytest.raises(json.JSONDecodeError):  # Django's page for an error 500
            ask(f"{url}/buy/", {"item": "glass"})
        assert ask(f"{url}/buy/", {"item": "unicorn"})[0] == 409
        assert jobs(project) == []
        _, bought = ask(f"{url}/buy/", {"item": "tea"})
        assert [job["id"] for job in jobs(project)] == [bought["job"]]


# -- the command -------------------------------------------------------------------------------------------------------
def test_the_command_knows_the_app_and_keeps_its_exit_codes(project, tmp_path):
    set_up(project)
    job = manage(project, "leasehold", "jobs", "enqueue", "ship", '{"order_id": 1}').split()[-1]
    elsewhere = {"LEASEHOLD_URL": f"sqlite:///{tmp_path}/elsewhere.db"}
    assert job in manage(project, "leasehold", "jobs", "--json", **elsewhere), "the settings say where"
    assert "worker" in manage(project, "leasehold", "why", job)
    assert "no job" in manage(
        project, "leasehold", "jobs", "show", "00000000-0000-7000-8000-000000000000", code=3
    )
    assert "Run jobs:" in manage(project, "leasehold", code=2)
    assert "--burst" in manage(project, "leasehold", "worker", "--help")
    # Without manage.py: the app sets Django up, and its tasks are found.
    project.python("-m", "leasehold", "worker", "leasehold.contrib.django:app", "--burst")
    assert "Order matching query does not exist" in manage(project, "leasehold", "jobs", "show", job)


def test_a_wrong_setting_is_named_when_django_starts(project):
    add_settings(project, "\nLEASEHOLD = {'DATABASE': 'jobs'}\n")
    said = manage(project, "check", code=1)
    assert "ImproperlyConfigured: LEASEHOLD['DATABASE'] names 'jobs', which is not in DATABASES" in said
    add_settings(project, "\nINSTALLED_APPS.remove('leasehold.contrib.django')\n")
    said = project.python("-c", "from leasehold.contrib.django import app", code=1)
    assert "INSTALLED_APPS lacks 'leasehold.contrib.django'" in said


# -- connections -------------------------------------------------------------------------------------------------------
LOOK = """
from asgiref.sync import sync_to_async
from django.db import connection
from leasehold.contrib.django import app

from shop.models import Order

seen = []

def is_closed(one):
    if hasattr(one, "closed"):
        return one.closed
    try:
        one.execute("select 1")
    except Exception as error:
        return "closed" in str(error)
    return False

@app.task
def look() -> list[bool]:
    closed = [is_closed(one) for one in seen]
    Order.objects.count()
    seen.append(connection.connection)
    return closed

@app.task
async def alook() -> list[bool]:
    closed = [is_closed(one) for one in seen]
    await Order.objects.acount()
    seen.append(await sync_to_async(lambda: connection.connection)())
    return closed

@app.task(run_in="process")
def alone() -> int:
    return Order.objects.count()
"""
CLOSES = "\nDATABASES['default']['CONN_MAX_AGE'] = 0\n"
STAYS = "\nDATABASES['default'] |= {'CONN_MAX_AGE': None, 'CONN_HEALTH_CHECKS': True}\n"


def test_a_run_leaves_no_connection_open_and_a_process_of_its_own_has_django(project):
    set_up(project, LOOK, CLOSES)
    assert results(project, "look", "look", "alone", "look") == [[], [True], 0, [True, True]]
    assert results(project, "alook", "alook", "alook") == [[], [True], [True, True]]


def test_a_connection_may_stay_for_the_next_run_but_not_for_async_ones(project):
    set_up(project, LOOK, STAYS)
    assert results(project, "look", "look") == [[], [False]]
    assert results(project, "alook", "alook") == [[], [True]]


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_a_connection_that_has_broken_is_replaced_before_the_next_run(project, postgres_server):
    set_up(project, LOOK, STAYS)

    def result() -> list[bool]:
        """Exit code 0: it has succeeded, and a task that says nothing of retries has one attempt."""
        return json.loads(
            manage(project, "leasehold", "jobs", "enqueue", "look", "--wait", "5m").splitlines()[-1]
        )

    with project.stays("manage.py", "leasehold", "worker", "--threads", "1"):
        assert result() == []
        assert result() == [False], "the same connection again"
        assert postgres_server.terminate_backends(project.environment["DB_NAME"]) > 0
        result()
        assert result() == [True, True, False], "its own connection is a new one"


# -- tests of the user's own -------------------------------------------------------------------------------------------
DRAINED = """
import gc, tempfile

from django.db import connection
from django.test import TransactionTestCase
from leasehold.contrib.django import app
from leasehold.testing import sandbox

from shop.models import Order


class DrainTest(TransactionTestCase):
    def test_a_worker_ships_it(self):
        with tempfile.TemporaryDirectory() as folder, sandbox(app, folder) as box:
            self.client.post("/buy/", {"item": "tea"})
            gc.disable()  # what is left open stays open: at its end Django drops the database
            self.assertEqual(box.drain(), 1)
        self.assertTrue(Order.objects.get().shipped)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
                self.assertEqual(cursor.fetchone(), (1,))


class UnguardedTest(TransactionTestCase):
    def test_a_job_does_not_leave_the_test_database(self):
        with self.assertRaisesMessage(Exception, "tx"):
            self.client.post("/buy/", {"item": "tea"})
"""


def test_the_users_own_tests_run_in_a_sandbox(project):
    (project.folder / "shop/test_drained.py").write_text(DRAINED)
    set_up(project, settings="\nDATABASES['default']['TEST'] = {'NAME': None}\n")
    said = manage(project, "test", "--noinput", "--pattern", "test*.py")
    assert re.search(r"^Ran 3 tests", said, re.MULTILINE), said
    assert jobs(project) == [], "nothing has reached the project's own database"
