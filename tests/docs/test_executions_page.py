"""The examples of docs/executions.md: the commands run as they stand there, the containers say what the page says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from leasehold.types import State
from tests.docs.pages import blocks
from tests.workers import burst


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.chdir(tmp_path)
    modules = []
    for number, code in enumerate(blocks("executions.md", "python")):
        names: dict[str, Any] = {"__file__": str(tmp_path / "page.py")}
        exec(compile(code, f"executions.md, block {number}", "exec", dont_inherit=True), names)
        modules.append(names)
    return modules


def put_program(folder: Path, name: str, code: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    path.chmod(0o755)


def test_the_commands_of_the_page_run(
    page: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    keep = "import json, os, sys; json.dump([sys.argv[1:], {**os.environ}], open(os.environ['LEASEHOLD_RESULT'], 'w'))"
    (tmp_path / "train_model.py").write_text(keep, encoding="utf-8")
    put_program(tmp_path, "crawler", f"{keep}\nsys.exit(2)")
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}", prepend=":")
    monkeypatch.setenv("CRAWLER_KEY", "k")
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s")
    first = page[0]
    with first["app"] as app:
        trained, crawled = first["train"].enqueue("r-1"), first["crawl"].enqueue("example.org")
        burst(app)
        argv, environment = trained.result(timeout=0)
        assert argv == ["r-1"]
        assert "SECRET_OF_THE_WORKER" not in environment
        ended = app.get(crawled.id)
        assert (ended.state, ended.attempt) == (State.FAILED, 1), "2 is not retried"


def test_the_containers_of_the_page_are_what_it_says(page: list[dict[str, Any]]):
    tools, shared = page[1], page[2]
    assert tools["convert"]("a.png") == ["convert", "a.png"]
    spec = tools["scan"]("example.org")
    assert (spec.image, spec.network, spec.read_only, spec.outputs) == (
        "scanner:3",
        "none",
        True,
        ["report.json"],
    )
    assert shared["index"]("x") == ["index", "x"]
    for names in (tools, shared):
        names["app"].close()
