"""The program on the page about workflows runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from pathlib import Path

import pytest

from leasehold import State
from tests.backends import Backend

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"


@pytest.fixture
def papers(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The page's first block, as a module of that name."""
    (program,) = re.findall(r"```python\n(# papers\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    module = types.ModuleType("papers")
    monkeypatch.setitem(sys.modules, "papers", module)
    exec(compile(program, str(PAGE), "exec"), module.__dict__)
    return module


def test_the_program_on_the_page_does_what_the_page_says(papers: types.ModuleType):
    with papers.app as app:
        jobs = papers.read(["a", "b"])
        asyncio.run(app.worker(burst=True, retention=None).run())
        assert jobs["report"].result(timeout=0) == 2
        found = [app.get(job.id) for job in app.jobs(kind="index").jobs]
        assert sorted(job.args["paper"] for job in found) == ["TEXT OF A", "TEXT OF B"]
        assert {job.state for job in found} == {State.SUCCEEDED}
