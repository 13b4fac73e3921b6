"""The reference is what the source says now, lacks nothing public, and every name is shown in use on another page."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

import leasehold.errors
from leasehold import Leasehold
from leasehold.stores.open import open_store
from leasehold.stores.tenants.tenant_store import VERBS
from leasehold.surfaces.cli.main import command
from leasehold.surfaces.http.api import create_app
from leasehold.tasks.settings import CALL_ONLY, OF_TASK
from tools.reference import internals_pages, reference_pages
from tools.reference.cli import commands
from tools.reference.environment import variables
from tools.reference.errors import reported
from tools.reference.python import modules, public_names
from tools.reference.settings import Group, groups
from tools.reference.sql import columns, postgres_columns

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "leasehold"

# Public names that no guide has to show, and why. An entry that is mentioned after all fails a test too.
UNMENTIONED: dict[str, str] = {}


@pytest.fixture
def jobs_view(postgres_url: str, postgres_schema: str) -> dict[str, str]:
    store = open_store(postgres_url, schema=postgres_schema)
    store.upgrade()
    store.close()
    return postgres_columns(postgres_url, postgres_schema)


@cache
def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


@cache
def other_pages() -> str:
    """What people read besides the reference. Decisions and internals are about our code, not about its use."""
    docs = ROOT / "docs"
    pages = [*docs.glob("*.md"), *(docs / "guides").glob("*.md"), *(docs / "concepts").glob("*.md")]
    return "\n".join(one.read_text(encoding="utf-8") for one in sorted(pages))


@cache
def code_on_pages() -> str:
    """Code blocks and code spans: a setting called `at` is not mentioned by the word."""
    text = other_pages()
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`[^`\n]+`", rest)])


def names() -> dict[str, str]:
    return {name: module.__name__ for module in modules() for name in public_names(module)}


# -- current ---------------------------------------------------------------------------------------------------------
def test_the_reference_is_current(jobs_view: dict[str, str]):
    wanted = reference_pages(jobs_view)
    assert {path.name for path in REFERENCE.glob("*.md")} == set(wanted)
    stale = [name for name, text in wanted.items() if page(name.removesuffix(".md")) != text]
    assert stale == [], "run: python -m tools.generate"


def test_the_page_of_the_store_is_current_and_has_a_promise_for_every_verb():
    text = internals_pages()["store.md"]
    assert (ROOT / "docs" / "internals" / "store.md").read_text("utf-8") == text, (
        "run: python -m tools.generate"
    )
    promised = re.findall(r"^- `(?:await )?(\w+).*?`(?: \(\*each database\*\))?: \S", text, re.MULTILINE)
    assert sorted(promised) == sorted(VERBS | {"label", "results_folder"})


# -- complete --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", groups(), ids=lambda group: group.title)
def test_every_setting_has_a_type_and_a_sentence(group: Group):
    assert group.settings
    assert [one.name for one in group.settings if not one.type or not one.sentence.endswith(".")] == []


def test_every_keyword_that_a_task_and_a_call_take_stands_in_the_settings():
    listed = {one.name for group in groups() for one in group.settings}
    assert (OF_TASK | CALL_ONLY) - listed == set()


def test_every_keyword_of_the_app_and_its_workers_stands_in_the_settings():
    for function in (Leasehold.__init__, Leasehold.worker, Leasehold.schedule, Leasehold.command):
        for name, one in inspect.signature(function).parameters.items():
            if name != "self" and one.kind is not one.VAR_KEYWORD:
                assert f"| `{name}` |" in page("settings"), function


def test_every_public_name_stands_in_the_reference():
    text = page("python") + page("errors")
    assert [name for name in names() if not re.search(rf"[#`.\[ ]{name}\b", text)] == []


def test_every_public_method_stands_under_its_class_with_a_sentence():
    bare = re.findall(
        r"^- `(?:await )?\w+(?:\(.*\))?(?: -> .*)?`: *(?:Async: .*)?$", page("python"), re.MULTILINE
    )
    assert bare == []
    for name in ("jobs", "search", "prune", "worker", "tenant"):
        assert f"- `{name}(" in page("python")


@pytest.mark.parametrize("name", leasehold.errors.__all__)
def test_every_error_has_a_sentence_and_a_remedy(name: str):
    sentence, remedy = reported(getattr(leasehold.errors, name))
    assert sentence
    assert remedy.endswith(".")
    assert f"## {name}\n" in page("errors")


def test_every_command_stands_in_the_reference():
    found = [name for name, _, _ in commands(command())]
    assert len(found) > 70
    assert [name for name in found if f"## leasehold {name}\n" not in page("cli")] == []


def test_every_route_stands_in_the_reference_with_a_sentence(tmp_path: Path):
    routes = create_app(Leasehold(f"sqlite:///{tmp_path}/unused.db")).router.routes
    for route in [one for one in routes if isinstance(one, APIRoute)]:
        for method in route.methods:
            row = re.escape(f"| `{method} {route.path_format}` |")
            assert re.search(row + r" \S+ \| \w.*\. \|$", page("http"), re.MULTILINE), route.path
    assert not (tmp_path / "unused.db").exists()


def test_every_environment_variable_that_the_source_names_stands_in_the_reference():
    """By a plain search of the text, which knows nothing of how the page is made."""
    read = re.compile(r"(?:environ(?:\.get)?[\[(]|getenv\(|envvar=)\s*(?:\"([A-Z_]+)\"|([A-Z_]+)\b)")
    constant = re.compile(r"^([A-Z_]+) = \"([A-Z_]+)\"$", re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    values = {name: value for text in texts for name, value in constant.findall(text)}
    found = {literal or values[name] for text in texts for literal, name in read.findall(text)}
    assert "LEASEHOLD_URL" in found
    assert "REDIS_URL" in found
    assert sorted(name for name in found if f"| `{name}` |" not in page("environment")) == []
    assert all(variables().values()), "a variable has no sentence: write it under its constant"


def test_every_column_of_the_view_stands_in_the_reference_and_both_databases_have_it(
    jobs_view: dict[str, str],
):
    assert set(columns()) == set(jobs_view)
    assert [name for name in columns() if f"| `{name}` |" not in page("sql")] == []


# -- shown in use ----------------------------------------------------------------------------------------------------
def test_every_public_name_is_mentioned_on_a_page_that_is_not_the_reference():
    missing = {
        name: module for name, module in names().items() if not re.search(rf"\b{name}\b", other_pages())
    }
    assert {name: module for name, module in missing.items() if name not in UNMENTIONED} == {}
    assert sorted(UNMENTIONED.keys() - missing.keys()) == [], "these are mentioned: take them out"


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.title)
def test_every_setting_is_mentioned_on_a_page_that_is_not_the_reference(group: Group):
    missing = [
        one.name
        for one in group.settings
        if not re.search(rf"\b{one.name}=|`{one.name}`|--{one.name.replace('_', '-')}\b", code_on_pages())
    ]
    assert missing == []
