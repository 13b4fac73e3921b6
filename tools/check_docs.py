"""Checks that every relative link in the documents leads to a file, and every #anchor to a heading.

    python -m tools.check_docs

Addresses of other sites are left alone: a check that needs the network fails for reasons of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CHANGELOG.md")
FOLDERS = ("docs", "examples", "tests")

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
TARGET = r"(?:<([^<>]*)>|([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*))"
INLINE_LINK = re.compile(r"\]\(\s*" + TARGET + r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[(?!\^)[^\]]+\]:\s*" + TARGET)
HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)\s*=\s*[\"']([^\"']*)[\"']", re.IGNORECASE)
HTML_ANCHOR = re.compile(r"<\w+\b[^>]*?\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
HEADING = re.compile(r" {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$")
UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})\s*$")
SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
LINE_NUMBER = re.compile(r"L(\d+)(?:-L(\d+))?")


class Problem(NamedTuple):
    file: str
    line: int
    text: str


def find_problems(root: Path) -> list[Problem]:
    """Every link of the documents under `root` that leads nowhere."""
    problems = []
    for file in documents(root):
        name = file.relative_to(root).as_posix()
        if not file.is_file():
            problems.append(Problem(name, 0, "the document is missing"))
            continue
        for line, target in links(file.read_text(encoding="utf-8")):
            if (text := what_is_wrong(root, file, target)) is not None:
                problems.append(Problem(name, line, text))
    return problems


def documents(root: Path) -> list[Path]:
    folders = [file for name in FOLDERS for file in sorted((root / name).rglob("*.md"))]
    return [root / name for name in DOCUMENTS] + folders


def links(text: str) -> Iterator[tuple[int, str]]:
    """(line number, target) of each link of a Markdown text."""
    for number, line in prose(text):
        without_code = CODE_SPAN.sub("", line)
        for pattern in (INLINE_LINK, REFERENCE, HTML_LINK):
            for found in pattern.finditer(without_code):
                yield number, next((group for group in found.groups() if group is not None), "")


def what_is_wrong(root: Path, file: Path, target: str) -> str | None:
    if SCHEME.match(target):
        return None
    path_part, _, anchor = target.partition("#")
    path_part, anchor = unquote(path_part.partition("?")[0]), unquote(anchor)
    if path_part.startswith("/"):
        return f"{target}: an absolute path is different for every reader; make it relative"
    goal = (file.parent / path_part).resolve() if path_part else file.resolve()
    if not goal.is_relative_to(root.resolve()):
        return f"{target}: leads out of the repository"
    if not goal.exists():
        return f"{target}: there is no such file"
    if anchor and not _has_anchor(goal, anchor):
        return f"{target}: there is no heading or anchor #{anchor} in {goal.relative_to(root.resolve())}"
    return None


@cache
def anchors(file: Path) -> frozenset[str]:
    """The anchors of a document: what the usual renderers make of its headings, and explicit ones."""
    found: set[str] = set()
    previous = ""
    for _, line in prose(file.read_text(encoding="utf-8")):
        found.update(HTML_ANCHOR.findall(CODE_SPAN.sub("", line)))
        heading = None
        if match := HEADING.match(line):
            heading = match[1]
        elif previous.strip() and UNDERLINE.match(line):
            heading = previous
        if heading is not None:
            base = slug = slug_of(heading)
            repeat = 0
            while slug in found:
                repeat += 1
                slug = f"{base}-{repeat}"
            found.add(slug)
        previous = "" if heading is not None else line
    return frozenset(found)


def slug_of(heading: str) -> str:
    """`Claim & *settle*` → `claim--settle`: lower case, punctuation dropped, spaces to hyphens."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"(?<!\w)_+(?=\S)(.+?)(?<=\S)_+(?!\w)", r"\1", text)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) of a Markdown text without its fenced code and comments."""
    text = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = FENCE.match(line)
        if not fence and mark:
            fence = mark[1]
        elif fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        else:
            yield number, line


def _has_anchor(goal: Path, anchor: str) -> bool:
    if goal.suffix == ".md":
        return anchor in anchors(goal)
    if goal.is_file() and (lines := LINE_NUMBER.fullmatch(anchor)):
        last = int(lines[2] or lines[1])
        return 1 <= int(lines[1]) <= last <= len(goal.read_text(encoding="utf-8").splitlines())
    return False


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    problems = find_problems(root)
    for problem in problems:
        print(f"{problem.file}:{problem.line}: {problem.text}", file=sys.stderr)
    if problems:
        return 1
    print(f"{len(documents(root))} documents: every link leads somewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
