"""The examples of docs/concepts/executions.md: its commands run as they stand, its containers do what the page says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from leasehold.types import State
from tests.docs.pages import blocks
from tests.workers import burst


def load(file: str, folder: Path) -> dict[str, Any]:
    """The names of the block that the page calls by this file's name."""
    (code,) = (code for code in blocks("concepts/executions.md", "python") if code.startswith(f"# {file}\n"))
    names: dict[str, Any] = {"__file__": str(folder / file)}
    exec(compile(code, file, "exec", dont_inherit=True), names)
    return names


def put_program(folder: Path, name: str, code: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    path.chmod(0o755)


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    keep = "import json, os, sys; json.dump([sys.argv[1:], {**os.environ}], open(os.environ['LEASEHOLD_RESULT'], 'w'))"
    (tmp_path / "train_model.py").write_text(keep, encoding="utf-8")
    put_program(
        tmp_path,
        "crawler",
        "import os, sys; print(sys.argv, os.environ['DEPTH'], os.environ['CRAWLER_KEY']);"
        "sys.exit(2 if 'gone.example' in sys.argv else 0)",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}", prepend=":")
    monkeypatch.setenv("CRAWLER_KEY", "k")
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "s")
    page = load("train.py", tmp_path)
    with page["app"] as app:
        trained = page["train"].enqueue("r-1")
        crawled, refused = page["crawl"].enqueue("example.org"), page["crawl"].enqueue("gone.example")
        burst(app)
        argv, environment = trained.result(timeout=0)
        assert argv == ["r-1"]
        assert "SECRET_OF_THE_WORKER" not in environment
        (line,) = crawled.result(timeout=0)
        assert line.endswith("'--site', 'example.org'] 3 k")
        ended = app.get(refused.id)
        assert (ended.state, ended.attempt) == (State.FAILED, 1), "2 is not retried"


def test_the_containers_of_the_page_are_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    tools, shared = load("tools.py", tmp_path), load("shared_data.py", tmp_path)
    assert tools["convert"]("a.png") == ["convert", "a.png"]
    spec = tools["scan"]("example.org")
    assert (spec.image, spec.network, spec.read_only, spec.outputs) == (
        "scanner:3",
        "none",
        True,
        ["report.json"],
    )
    spec = shared["index"]("x")
    assert (spec.network, spec.argv, [mount.read_only for mount in spec.mounts]) == (
        "tools",
        ["/data/x"],
        [True],
    )
    for names in (tools, shared):
        names["app"].close()
