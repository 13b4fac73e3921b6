"""Tables fit the terminal: no line is wider, no word is broken, nothing empty; ids are short, and found again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from leasehold import Leasehold
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import WorkerCard
from leasehold.surfaces.cli.render import draw, fit
from tests.backends import new_id
from tests.contract.lives import end
from tests.surfaces.cli.test_jobs import fail
from tests.surfaces.cli.test_terminal import on_a_terminal

ERROR = "the lease was lost: its worker died, froze or was cut off from the database for too long"


def lines_of(columns: list[str], rows: list[list[str]], width: int, prose: tuple[str, ...] = ()) -> list[str]:
    console = Console(width=width, file=None, record=True, force_terminal=False, quiet=False)
    with console.capture() as captured:
        console.print(draw(columns, rows, width, prose), soft_wrap=True)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [66, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_long_cells_are_cut(width: int):
    row = [new_id()[:13], "succeeded", "make_report", "reports", "", "2", "10m", ERROR]
    heads = ["id", "state", "task", "queue", "lane", "attempt", "age", "what"]
    head, rule, line = lines_of(heads, [row], width)
    assert max(map(cell_len, (head, rule, line))) <= width
    assert head.split() == ["id", "state", "task", "queue", "attempt", "age", "what"], "no lane: no column"
    assert line.split()[:2] == [row[0], "succeeded"]
    assert width < 80 or "make_report" in line
    assert line.endswith("…") or ERROR in line


def test_prose_is_wrapped_at_words():
    width = 60
    rows = [["lanes", "bad", ERROR, "pause and resume the first job of the lane"]]
    lines = lines_of(["check", "verdict", "found", "remedy"], rows, width, ("found", "remedy"))
    assert max(map(cell_len, lines)) <= width
    words = {word for line in lines[2:] for word in line.split()}
    assert words == {"lanes", "bad", *ERROR.split(), *rows[0][3].split()}


def test_a_word_of_prose_that_is_too_long_for_the_line_is_cut():
    rows = [["reports", "paused", "by " + "x" * 60 + " for good"]]
    lines = lines_of(["queue", "state", "why"], rows, 40, ("why",))
    assert max(map(cell_len, lines)) <= 40
    assert [line.split()[-1] for line in lines[2:]][1].endswith("…")
    assert "for good" in lines[-1]


def test_the_widest_give_way_and_ids_and_states_do_not():
    widths = fit(["id", "state", "what"], [["x" * 36, "timed_out", "y" * 90]], 70)
    assert widths == [36, 9, 21]
    assert fit(["id", "what"], [["x" * 36, "y" * 90]], 20) == [36, 7], (
        "too narrow for anything: the terminal wraps"
    )


def plainly(folder: Path, *arguments: str, **environment: str) -> str:
    code, seen = on_a_terminal(folder, *arguments, **environment)
    assert code == 0, seen
    return re.sub(r"\x1b\[[0-9;]*m", "", seen)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = f"sqlite:///{tmp_path}/cli.db"
    monkeypatch.setenv("LEASEHOLD_URL", url)
    with Leasehold(url) as app:

        @app.task
        def make_report() -> None: ...

        yield app


@pytest.mark.parametrize("width", [80, 100])
def test_lists_on_a_terminal_fit_it_and_their_ids_find_the_job(app, tmp_path: Path, width: int):
    jobs = [app.enqueue("make_report") for _ in range(3)]
    fail(app, jobs[0], ERROR)
    parent, child = jobs[1], app.enqueue("make_report", after=[jobs[1]])
    size = {"COLUMNS": str(width), "NO_COLOR": "1"}
    seen = plainly(tmp_path, "jobs", **size)
    listed = [line for line in seen.splitlines() if line.startswith(jobs[0].id[:8])]
    assert len(listed) == 4, seen
    assert max(map(cell_len, seen.splitlines())) <= width
    assert all(
        word in seen for word in ("succeeded", "pending", "failed", "make_report") if word != "succeeded"
    )
    for line, job in ((listed[0], child), (listed[-1], jobs[0])):
        short = line.split()[0]
        assert len(short) < len(job.id)
        shown = plainly(tmp_path, "jobs", "show", short, **size)
        assert job.id in shown
        assert max(map(cell_len, shown.splitlines())) <= width
        words = set(shown.split())
        assert job is not jobs[0] or set(ERROR.split()) <= words, "no word is broken"
        assert max(map(cell_len, plainly(tmp_path, "why", short, **size).splitlines())) <= width
        if job is child:
            assert "waits for" in shown
            assert parent.id not in shown.partition("relatives")[2], "short there, too"


LONG = "crawl-the-archive-of-example.org-and-its-mirrors"


@pytest.fixture
def busy(app):
    """Something in every list, with names and reasons that are too long for a line."""
    task = f"make_report_for_{LONG}"

    @app.task(name=task, queue=LONG, lane=LONG)
    def long_one() -> None: ...

    for _ in range(2):
        app.enqueue(task, group="g", tags=(LONG,))
    store = app.__internals__.store
    assert store.claim("w", [LONG], 1), "its lane is held"
    app.group("g").budget(tokens=1_000_000)
    app.slots.set(LONG, 4)
    app.rates.set(f"{LONG}-rate", "60/min")
    app.queues.pause(LONG, reason=ERROR, actor=LONG)
    app.schedules.set(LONG, "make_report", cron="30 2 * * 1-5", tz="America/Argentina/ComodRivadavia")
    app.schedules.pause(LONG, ERROR, actor=LONG)
    app.schedules.set("short", "make_report", every="1h")
    asker = app.enqueue("make_report", priority=100)
    (grant,) = store.claim(f"{LONG}:4711:fc3232058eac", ["default"], 1)
    assert grant.id == asker.id
    end(store, grant, QuestionAsked("login", ERROR))
    store.report_worker(
        WorkerCard(
            name=f"{LONG}:4711:fc3232058eac",
            queues=(LONG, "default"),
            tasks=(task,),
            concurrency=4,
            running=0,
            version="1",
        )
    )
    return app


@pytest.mark.parametrize(
    "command",
    [
        "jobs",
        "queues",
        "tasks",
        "lanes",
        "limits slots",
        "limits rates",
        "limits budgets",
        "schedules",
        "audit",
        "questions",
        "workers",
        "workers leases",
        "workers health",
        "groups",
        "groups show g",
        "status",
        "doctor",
    ],
)
def test_every_list_fits_80_columns_however_long_its_names_are(busy, tmp_path: Path, command: str):
    code, seen = on_a_terminal(tmp_path, *command.split(), COLUMNS="80", NO_COLOR="1")
    assert code in (0, 1), seen
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()
    lines = [line for line in lines if "sqlite:" not in line]  # a URL is shown whole
    assert len(lines) >= 3, seen
    assert max(map(cell_len, lines)) <= 80, "\n".join(line for line in lines if cell_len(line) > 80)
