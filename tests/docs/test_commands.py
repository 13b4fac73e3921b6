"""Every command that a page, a message or a remedy names is there, with the options that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup

from leasehold.surfaces.cli.main import command
from tests.docs.pages import DOCS
from tools.reference.cli import commands

ROOT = DOCS.parent
NAMED = re.compile(r"(?<![\w./-])leasehold ([a-z][a-z-]*\b[^`\n]*)")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")


def texts() -> Iterator[tuple[str, str]]:
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/**/*.md",
        "examples/**/*.py",
        "src/**/*.py",
        "src/**/*.html",
    ):
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8").replace("\\\n", " ")


def wrong(text: str) -> Iterator[str]:
    """What is not there of the commands that a text names. A word that is no command anywhere is prose."""
    verbs = {name.split()[-1] for name, _, _ in commands(command())}
    for found in NAMED.finditer(text):
        words = re.split(r" [#|<>&]", found[1])[0].split()
        at: Any = command()
        while (
            words and isinstance(at, TyperGroup) and (below := at.get_command(None, words[0].strip('.,;:)"')))
        ):
            at = below
            words.pop(0)
        if isinstance(at, TyperGroup) and words and words[0] in verbs:
            yield f"leasehold {found[1]}: no such command"
        elif at is not command():
            taken = options_of(at)
            yield from (
                f"leasehold {found[1]}: no {one}"
                for one in OPTION.findall(" ".join(words))
                if one not in taken
            )


def options_of(at: Any) -> set[str]:
    """A noun alone takes the options of its list."""
    listed = at.get_command(None, "list") if isinstance(at, TyperGroup) else at
    parameters = [] if listed is None else listed.params
    return {"--help", *(name for one in parameters for name in [*one.opts, *one.secondary_opts])}


def test_every_command_that_is_named_is_there():
    problems = [f"{path}: {problem}" for path, text in texts() for problem in wrong(text)]
    assert problems == []


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("run `leasehold jobs cancel ID --yes`, then `leasehold jobs --state failed`", 0),
        ("leasehold worker shop:app --burst | grep --color x", 0),
        ("leasehold keeps jobs", 0),
        ("see `leasehold cancel ID`", 1),
        ("see `leasehold jobs answer ID`", 1),
        ("see `leasehold limits rates pause`", 1),
        ("leasehold jobs cancel --kind x", 1),
        ("leasehold jobs --reason x", 1),
    ],
)
def test_a_command_that_is_not_there_is_noticed(text: str, problems: int):
    assert len(list(wrong(text))) == problems
