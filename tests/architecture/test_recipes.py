"""The recipes of CONTRIBUTING.md name files that exist, and few of them."""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import PACKAGE, ROOT

RECIPE = re.compile(r"^\*\*Add (.+?)\*\*(.*?)(?=^\*\*Add |^## )", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:\w+/)*(?:\w+\.(?:py|sql|html)|migrations))`")

RECIPES = dict(RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
MOST_FILES = {"a verb": 8, "a column of a job": 10}


def test_there_is_a_recipe_for_what_is_added_most_often():
    assert set(RECIPES) == {
        "a verb", "a setting of a task", "a column of a job", "a page of the dashboard", "a statement", "a runner",
    }  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_every_file_that_a_recipe_names_exists(name: str):
    paths = PATH.findall(RECIPES[name])
    assert paths
    folders = (PACKAGE, ROOT)
    assert [
        path for path in paths if not any(any(one.glob(path.replace("NAME", "*"))) for one in folders)
    ] == []


@pytest.mark.parametrize("name", MOST_FILES)
def test_what_is_added_often_touches_few_files(name: str):
    """Those of the bullets; in `src`, as tests and documents come on top."""
    bullets = "\n".join(re.findall(r"^- .*(?:\n  .*)*", RECIPES[name], re.MULTILINE))
    assert len(set(PATH.findall(bullets))) <= MOST_FILES[name]
