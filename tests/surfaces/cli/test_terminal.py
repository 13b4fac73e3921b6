"""On a terminal: tables are drawn and coloured, unless NO_COLOR; a person is asked, and sees progress."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold import Leasehold

COLOUR = "\x1b[3"


def on_a_terminal(folder: Path, *arguments: str, answer: str = "", **environment: str) -> tuple[int, str]:
    """What a person would see, after typing the answer ahead."""
    main, terminal = pty.openpty()
    unset = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold", *arguments],
        cwd=folder,
        env={**unset, "TERM": "xterm", "COLUMNS": "200", **environment},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    os.write(main, answer.encode())
    seen = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        seen += part
    os.close(main)
    return process.wait(30), seen.decode()


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = f"sqlite:///{tmp_path}/cli.db"
    monkeypatch.setenv("LEASEHOLD_URL", url)
    with Leasehold(url) as app:

        @app.task
        def work() -> None: ...

        yield app


def test_a_table_is_drawn_in_colour_and_without_it_on_request(app, tmp_path: Path):
    job = app.enqueue("work")
    code, seen = on_a_terminal(tmp_path, "jobs")
    assert code == 0
    assert job.id[:13] in seen
    assert "─" in seen
    assert COLOUR in seen
    _, plain = on_a_terminal(tmp_path, "jobs", NO_COLOR="1")
    assert job.id[:13] in plain
    assert COLOUR not in plain


def test_bulk_work_asks_with_the_count_and_shows_its_progress(app, tmp_path: Path):
    for _ in range(25):
        app.enqueue("work")
    code, seen = on_a_terminal(tmp_path, "jobs", "cancel", "--queue", "default", answer="y\n")
    assert code == 0
    assert "cancel 25 job(s)? [y/N]" in seen
    assert "100%" in seen
    assert "25 done, 0 refused" in seen
