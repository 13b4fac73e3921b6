"""A SQLite file that this user may not open, or only read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import Leasehold
from leasehold.errors import DatabaseUnreachable
from tests.workers import burst

NOBODY = 65534


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """As a user who owns nothing: root may read and write everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike the folders of tests."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        made.chmod(0o777)
        inner = made / "inner"
        inner.mkdir()
        inner.chmod(0o777)
        yield inner
        inner.chmod(0o777)


@pytest.fixture
def url(folder: Path, here) -> str:
    """A file with a schema, made by the owner."""
    url = f"sqlite:///{folder}/jobs.db"
    assert here("db", "upgrade", "--url", url).code == 0
    return url


@pytest.mark.parametrize("words", [("jobs", "list"), ("doctor",), ("db", "upgrade")], ids=" ".join)
def test_a_file_in_a_folder_that_may_not_be_searched_is_an_error_in_one_line(here, folder, url, words):
    here(*words, "--url", url)  # what a command imports is read as the owner
    folder.chmod(0o600)
    with without_privileges():
        answer = here(*words, "--url", url)
    assert answer.code == 6
    assert "Permission denied" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_an_upgrade_of_a_read_only_file_says_so(here, folder, url):
    (folder / "jobs.db").chmod(0o444)
    with without_privileges():
        answer = here("db", "upgrade", "--url", url)
    assert answer.code == 6
    assert "the file is read-only for this user" in answer.err


def test_a_worker_does_not_start_on_a_read_only_file(folder, url):
    (folder / "jobs.db").chmod(0o444)
    with Leasehold(url) as app:

        @app.task
        def work() -> None: ...

        with without_privileges(), pytest.raises(DatabaseUnreachable, match="read-only for this user"):
            burst(app)
