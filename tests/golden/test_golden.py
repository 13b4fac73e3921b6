"""What users and their programs see of every surface is what was frozen; a planned change is frozen with its commit."""

from __future__ import annotations

import difflib
from itertools import islice

import pytest

from tests.golden.freeze import COMMAND, FILES, HERE

LONGEST_DIFF = 60
"""Lines of a diff that are shown."""


@pytest.mark.parametrize("name", FILES)
def test_a_surface_is_as_it_was_frozen(name: str):
    frozen, now = (HERE / name).read_text(encoding="utf-8"), FILES[name]()
    diff = difflib.unified_diff(
        frozen.splitlines(), now.splitlines(), f"tests/golden/{name}", "now", n=2, lineterm=""
    )
    shown = "\n".join(islice(diff, LONGEST_DIFF))
    assert not shown, f"{name} differs. If that is meant, run: {COMMAND}\n{shown}"


def test_every_frozen_file_has_a_maker():
    kept = {path.name for path in HERE.iterdir() if path.suffix in (".json", ".txt")}
    assert kept == set(FILES)
