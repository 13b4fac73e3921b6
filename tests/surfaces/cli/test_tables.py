"""Tables fit the terminal: no line is wider, no word is broken, nothing empty; ids are short, and found again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from leasehold import Leasehold
from leasehold.surfaces.cli.tables import draw, fit
from tests.backends import new_id
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
    heads = ["id", "state", "task", "queue", "lane", "try", "age", "what"]
    head, rule, line = lines_of(heads, [row], width)
    assert max(map(cell_len, (head, rule, line))) <= width
    assert head.split() == ["id", "state", "task", "queue", "try", "age", "what"], "no lane: no column"
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


def test_the_widest_give_way_and_ids_and_states_do_not():
    widths = fit(["id", "state", "what"], [["x" * 36, "timed_out", "y" * 90]], 70)
    assert widths == [36, 9, 21]
    assert fit(["id", "what"], [["x" * 36, "y" * 90]], 20) == [36, 8], (
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
        shown = plainly(tmp_path, "show", short, **size)
        assert job.id in shown
        assert max(map(cell_len, shown.splitlines())) <= width
        words = set(shown.split())
        assert job is not jobs[0] or set(ERROR.split()) <= words, "no word is broken"
        assert max(map(cell_len, plainly(tmp_path, "why", short, **size).splitlines())) <= width
        if job is child:
            assert "waits for" in shown
            assert parent.id not in shown.partition("relatives")[2], "short there, too"
