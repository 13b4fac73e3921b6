"""The map of the source: every file of the package with the first sentence of its docstring, grouped by folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_HEAD = """# Map of the source

Every Python file of `src/leasehold` with the first sentence of its docstring. `python -m tools.generate` writes this
page: edit the docstrings instead. [ARCHITECTURE.md](../../ARCHITECTURE.md) says what the folders are for.
"""
_SENTENCE = re.compile(r".*?[.!?](?=\s|$)")
_CODE_OR_MARKUP = re.compile(r"(`[^`]*`)|([<*_])")


def source_map(package: Path) -> str:
    """The page, with the files directly in the package first."""
    folders = sorted({file.parent for file in package.rglob("*.py")})
    return "\n".join([_HEAD, *(_section(package, folder) for folder in folders)])


def _section(package: Path, folder: Path) -> str:
    name = folder.relative_to(package.parent).as_posix()
    init = folder / "__init__.py"
    about = [first_sentence(init), ""] if init.is_file() and init.stat().st_size else []
    files = [file for file in sorted(folder.glob("*.py")) if file != init]
    lines = [f"- `{file.name}`: {first_sentence(file)}" for file in files]
    return "\n".join([f"## {name}", "", *about, *lines, *[""][: len(lines)]])


def first_sentence(file: Path) -> str:
    """The first sentence of the file's docstring, as Markdown text."""
    text = " ".join((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split())
    found = _SENTENCE.match(text)
    if found is None:
        raise SystemExit(f"{file}: the docstring has to begin with a sentence that ends with a full stop")
    return _CODE_OR_MARKUP.sub(lambda part: part[1] or f"\\{part[2]}", found[0])
