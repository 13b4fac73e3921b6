"""The code of a page of the documents, taken from the page itself: what it shows is what is run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PART = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)(?P=fence)$"
    r"|<!--(?P<comment>.*?)-->",
    re.MULTILINE | re.DOTALL,
)
_COMMENTS = re.compile(r"\s*(not run:|output\b|setup\b|page:)")
_NOT_WALKED = ("decisions", "internals", "measured")


class PageError(Exception):
    pass


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    body: str
    not_run: str | None = None
    """The reason."""
    is_output: bool = False
    """It shows what the block before it prints."""


@dataclass(frozen=True)
class Page:
    blocks: list[Block]
    wants: set[str] = field(default_factory=set)


def pages() -> list[Path]:
    """Every page whose blocks are run."""
    found = [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in _NOT_WALKED]
    return [ROOT / "README.md", *sorted(found)]


def read_page(path: Path) -> Page:
    """Its blocks in order, the hidden ones included, with what the comments before them say."""
    text = path.read_text(encoding="utf-8")
    page = Page([])
    not_run: str | None = None
    is_output = False
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        comment = part["comment"]
        if comment is None:
            body = re.sub(rf"^{part['indent']}", "", part["body"], flags=re.MULTILINE)
            page.blocks.append(Block(line, part["language"], body, not_run, is_output))
            not_run, is_output = None, False
            continue
        said = _COMMENTS.match(comment)
        if said is None:
            continue
        if not_run is not None or is_output:
            raise PageError(f"{path.name}, line {line}: the comment before this one belongs to no block")
        rest = comment[said.end() :]
        match said[1]:
            case "not run:":
                not_run = " ".join(rest.split())
                if len(not_run) < 10:
                    raise PageError(f"{path.name}, line {line}: why is it not run?")
            case "output":
                is_output = True
            case "page:":
                page.wants.update(rest.split())
            case _:
                language, _, body = rest.partition("\n")
                page.blocks.append(Block(line, language.strip() or "python", body))
    if not_run is not None or is_output:
        raise PageError(f"{path.name}: the last comment belongs to no block")
    return page


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
