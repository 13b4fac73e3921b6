"""Every block of every page runs, or says why it does not (tests/docs/walk.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, PageError, pages, read_page
from tests.launcher import launch

LONG = 560
"""Seconds for a page; each of its commands has less."""


def walk(page: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.docs.walk", str(page)]
    with launch(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, err = process.communicate(timeout=LONG)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


SECONDS = {"tutorial": 55, "operations": 13, "fastapi": 9, "flask": 9, "sentry": 8, "quickstart": 8}


def _case(page: Path) -> object:
    marks = pytest.mark.slow(SECONDS.get(page.stem, 4))
    return pytest.param(page, id=page.relative_to(ROOT).as_posix(), marks=marks)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [_case(page) for page in pages()])
def test_every_block_of_a_page_runs(page: Path) -> None:
    done = walk(page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```python\nraise KeyError('gone')\n```\n", "KeyError: 'gone'"),
        ("```python\nassert 1 == 2\n```\n", "in line 1 of the page, python"),
        ("```console\nfalse\n```\n", "false: exit code 1"),
        ("```console\n$ echo one\ntwo\n```\n", "it was not printed"),
        ("```sh\ntrue\nfalse\ntrue\n```\n", "exit code 1"),
        ("```python\nprint(1)\n```\n<!-- output -->\n```text\n2\n```\n", "it was not printed"),
        ("```python\nprint(1)\nprint(2)\n```\n<!-- output -->\n```text\n1\n```\n", "printed 2 lines"),
        ("```json\n{\n```\n", "JSONDecodeError"),
        ("<!-- not run: no -->\n```python\nx\n```\n", "why is it not run"),
        ("<!-- output -->\n", "belongs to no block"),
        ("```console\nleasehold worker nothing:app\n```\n", "exit code"),
    ],
)
def test_a_walk_fails_where_a_reader_would(text: str, why: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    done = walk(page)
    assert done.returncode
    assert why in done.stderr


def test_a_walk_goes_through_files_commands_and_what_they_print(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        """# A page
<!-- setup
THERE = "x1"
-->
```python
# lib.py
def twice(x):
    return 2 * x
```
```python
import asyncio
await asyncio.sleep(0)
print(twice(4))
```
<!-- output -->
```text
8
```
```console
$ python -c 'import lib; print(lib.twice(21), "THERE")'   # by its name
42 …1
export COLOUR=red
$ echo $COLOUR
red
```
<!-- not run: it would never end -->
```console
sleep 1000
```
""".replace("export", "$ export"),
        encoding="utf-8",
    )
    done = walk(page)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(": 4 blocks ran\n")


def test_a_comment_that_stands_alone_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: there is nothing to run -->\n<!-- output -->\n", encoding="utf-8")
    with pytest.raises(PageError, match="belongs to no block"):
        read_page(page)
