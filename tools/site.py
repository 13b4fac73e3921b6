"""Builds the docs site into site/, with zensical and no network.

    python -m tools.site

The pages are written for a repository page first. A copy of docs/ is made fit for a site before it is built: HTML
comments go (they are marks for the tests), and links out of docs/ lead to a page of the site, or become the name of
the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.check_docs import SCHEME, TARGET, prose

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "site"
LOGO = "src/leasehold/surfaces/dashboard/static/icon.svg"
APPLICATION = re.compile(r"examples/(\w+)(?:/.*)?")
LIST_ITEM = re.compile(r"(?:[-*+]|\d+[.)]) ")
CROWDED = re.compile(r" {1,3}(?:[-*+] |\d+[.)] |`{3}|~{3})")
"""Inside a list item; zensical, as MkDocs, takes it for a part of the list only when it is indented by four."""

CONSOLE = re.compile(r"^```console(\n.*?^```$)", re.MULTILINE | re.DOTALL)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What a page is made of, besides plain text. The order matters: what comes first hides what is inside of it.
PART = re.compile(
    r"(?P<fence>^ *(?P<mark>`{3,}|~{3,})[^\n]*\n.*?(?:^ *(?P=mark)[`~]*[ \t]*$|\Z))"
    r"|(?P<comment>^[ \t]*<!--.*?-->[ \t]*\n|<!--.*?-->)"
    r"|(?P<link>!?\[(?P<text>(?:[^\[\]`]|`[^`\n]*`|\[[^\]]*\])*)\]"
    rf"\(\s*(?P<target>{TARGET})(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\))"
    r"|(?P<code>(?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?<!`)(?P=ticks)(?!`))",
    re.MULTILINE | re.DOTALL,
)


def main() -> int:
    try:
        pages = build(ROOT, WORK, ROOT / "site")
    except Unfit as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{pages} pages: open site/index.html")
    return 0


class Unfit(Exception):
    """A page, or the whole site, that cannot be built."""


def build(root: Path, work: Path, site: Path) -> int:
    """How many pages were built. `work` and `site` are written anew."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(root / "docs", work / "docs")
    shutil.copy(root / "mkdocs.yml", work)
    shutil.copy(root / LOGO, work / "docs" / "images" / "logo.svg")
    pages = sorted((work / "docs").rglob("*.md"))
    for page in pages:
        name = page.relative_to(work).as_posix()
        page.write_text(fit_for_site(page.read_text(encoding="utf-8"), root, name), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "-f",
        str(work / "mkdocs.yml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unfit(COLOUR.sub("", f"{done.stdout}{done.stderr}".partition("Traceback")[0]).strip())
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(work / "site", site)
    return len(pages)


def fit_for_site(text: str, root: Path, name: str) -> str:
    """The text of the page `name` (docs/…) as the site needs it."""
    for number, line in prose(text):
        if CROWDED.match(line):
            raise Unfit(f"{name}:{number}: indent what is inside a list item by four spaces")

    def fit(part: re.Match[str]) -> str:
        if part["comment"] is not None:
            return ""
        return _link(part, root, name) if part["link"] is not None else part[0]

    return _lists_apart(_coloured(PART.sub(fit, text)))


def _coloured(text: str) -> str:
    """Without a `$`, the highlighter would take every line of a console block for output."""
    return CONSOLE.sub(lambda block: block[0] if "\n$ " in block[0] else "```bash" + block[1], text)


def _link(link: re.Match[str], root: Path, name: str) -> str:
    target = link["target"].strip("<>")
    path, hash_, anchor = target.partition("#")
    if SCHEME.match(target) or not path:
        return link[0]
    goal = os.path.normpath(os.path.join(os.path.dirname(name), path))
    page = _page_for(root, goal)
    if page is None:
        # A file of the repository: its name is all that a reader of the site can use.
        names = (goal, os.path.dirname(goal), os.path.basename(goal), Path(goal).stem)
        return f"`{goal}`" if link["text"].strip("`") in names else f"{link['text']} (`{goal}`)"
    page, own_hash, own_anchor = page.partition("#")
    if page == goal:
        return link[0]
    address = os.path.relpath(page, os.path.dirname(name)) + (own_hash + own_anchor or hash_ + anchor)
    return link[0].replace(link["target"], address)


def _page_for(root: Path, goal: str) -> str | None:
    """The page (or picture, or other file of docs/) that shows the repository's file or folder `goal`."""
    if goal == "docs" or goal.startswith("docs/"):
        entries = (f"{goal}/{entry}" for entry in ("index.md", "README.md"))
        return next((entry for entry in entries if (root / entry).is_file()), goal)
    if goal in ("examples", "examples/README.md"):
        return "docs/examples.md"
    if (found := APPLICATION.fullmatch(goal)) and (goal.endswith("/README.md") or (root / goal).is_dir()):
        return f"docs/examples.md#{found[1]}"
    return None


def _lists_apart(text: str) -> str:
    """A repository page takes a list right after a paragraph for a list; Python-Markdown wants an empty line."""
    plain = dict(prose(text))
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        before = plain.get(number - 1, "")
        opens = number in plain and LIST_ITEM.match(line) is not None
        if opens and before.strip() and not before.startswith(" ") and not LIST_ITEM.match(before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
