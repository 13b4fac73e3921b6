"""What docs/guides/dashboard.md says: the app that it mounts, the options, the roles, the pages and the pictures."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from leasehold.domain.tokens import SCOPES
from leasehold.surfaces.cli.main import run
from leasehold.surfaces.dashboard.pages import ALL
from tests.backends import Backend
from tests.docs.pages import DOCS, write_files

PAGE = (DOCS / "guides/dashboard.md").read_text(encoding="utf-8")


def test_the_mounted_app_asks_for_a_sign_in_at_its_own_name(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert write_files("guides/dashboard.md", tmp_path) == ["tasks.py", "ops.py"]
    monkeypatch.setenv("LEASEHOLD_URL", backend.url)
    monkeypatch.setenv("LEASEHOLD_SCHEMA", backend.schema)
    names = runpy.run_path(str(tmp_path / "ops.py"))
    with names["app"], TestClient(names["api"], base_url="http://ops.example.org") as client:
        answer = client.get("/ops/", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ops/sign-in?next=%2Fops%2F")
        assert client.get("/ops/", headers={"Host": "other.example.org"}).status_code == 421


def test_the_options_that_it_names_are_there(capsys: pytest.CaptureFixture[str]):
    for command, options in {
        "serve": ("--no-dashboard", "--read-only", "--require-tokens"),
        "demo": ("--dashboard",),
        "dev": ("--open",),
    }.items():
        assert run([command, "--help"]) == 0
        printed = capsys.readouterr().out
        assert [option for option in options if option not in printed or option not in PAGE] == []


def test_it_names_every_page_and_every_role_has_scopes_that_there_are():
    named = {name.lower() for name in re.findall(r"^\| \*\*(\w+)\*\* \|", PAGE, re.MULTILINE)}
    templates = {page.template.removesuffix(".html") for page in ALL} - {
        "bulk",
        "bulk_run",
        "group",
        "group_stop",
    }
    assert named == templates
    roles = re.findall(r"^\| (?:viewer|operator|admin) \| (.+?) \|", PAGE, re.MULTILINE)
    assert {scope for cell in roles for scope in re.findall(r"`(\w+)`", cell)} == set(SCOPES) - {"enqueue"}


def test_every_picture_is_there_and_shown():
    shown = set(re.findall(r"\(\.\./images/(dashboard-[\w-]+\.png)\)", PAGE))
    assert shown == {path.name for path in (DOCS / "images").glob("dashboard-*.png")}
