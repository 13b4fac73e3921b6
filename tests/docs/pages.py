"""The code of a page of the documents, taken from the page itself: what it shows is what is run."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [body for name, body in _BLOCK.findall(text) if name == language]


def write_files(page: str, folder: Path) -> list[str]:
    """Every Python block that begins with `# name.py` becomes that file."""
    names = []
    for body in blocks(page, "python"):
        first = body.partition("\n")[0]
        if match := re.fullmatch(r"# (\w+\.py)", first):
            (folder / match[1]).write_text(body, encoding="utf-8")
            names.append(match[1])
    return names
