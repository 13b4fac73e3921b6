"""Processes and tenants: what a killed worker held is taken over in its tenant; many processes create one at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from leasehold.types import State
from tests.backends import Backend
from tests.faults.harness import Fleet, Place, wait_for
from tests.launcher import launch

CREATE = """
import sys
from leasehold import Leasehold
with Leasehold(sys.argv[1], schema=sys.argv[2]) as app:
    app.count()
    print("ready", flush=True)
    for name in sys.stdin:
        print(app.tenants.create(name.strip()), flush=True)
"""


def test_a_killed_workers_jobs_of_tenants_are_recovered(place: Place, fleet: Fleet):
    app = place.app
    names = ["acme", "beta"]
    for name in names:
        app.tenants.create(name)
    try:
        jobs = {name: app.enqueue("wait_on_loop", {"name": name}, tenant=name) for name in names}
        first = fleet.start(tenants="all", sweep=0.5)
        wait_for(lambda: all(job.refresh().state is State.RUNNING for job in jobs.values()), "both to run")
        first.kill()
        fleet.start(tenants="all", sweep=0.5)
        wait_for(lambda: all(len(job.attempts()) == 2 for job in jobs.values()), "a second run")
        for name, job in jobs.items():
            assert [one.id for one in app.tenant(name).jobs().jobs] == [job.id]
    finally:
        for name in names:
            app.tenants.drop(name)


def test_of_many_processes_that_create_a_tenant_at_once_one_has_created_it(backend: Backend, tmp_path: Path):
    program = tmp_path / "create.py"
    program.write_text(CREATE)
    processes = [
        launch(
            [sys.executable, str(program), backend.url, backend.schema],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for _ in range(6)
    ]
    names = [f"t{number}" for number in range(5)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for name in names:
            for process in processes:
                process.stdin.write(f"{name}\n")
                process.stdin.flush()
            answers = [process.stdout.readline().strip() for process in processes]
            assert sorted(answers) == ["False"] * 5 + ["True"], name
    finally:
        for process in processes:
            process.communicate()
        store = backend.open()
        for row in store.list_tenants():
            store.drop_tenant(row.name)
