"""The docs site: what stands in its navigation, what becomes of a page, and the built site itself, in a browser too."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from playwright.sync_api import Browser, Request

from leasehold.domain.states import TRANSITIONS, State, Trigger
from tests.docs.pages import pages as walked_pages
from tests.docs.pages import read_page
from tests.surfaces.dashboard.browsing import PATIENCE, overflow, screen
from tests.surfaces.dashboard.browsing import chromium as chromium
from tools import state_picture
from tools.nav import nav_of, with_nav
from tools.site import Unfit, build, fit_for_site

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PHONE = {"width": 390, "height": 844}
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}
"""What a browser fetches as soon as it shows a page."""


def entries(nav: Any) -> Iterator[str]:
    for entry in nav:
        for below in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [below] if isinstance(below, str) else entries(below)


def test_every_page_stands_in_the_navigation_once() -> None:
    # The one tag of the file names a function; the navigation does not need it.
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = sorted(entries(yaml.safe_load(text)["nav"]))
    assert listed == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")), (
        "run: python -m tools.generate"
    )


def test_a_page_that_no_list_names_is_in_the_navigation_all_the_same(tmp_path: Path) -> None:
    names = ["index.md", "examples.md", "news.md", "guides/http.md", "guides/aardvark.md"]
    names += [
        "concepts/index.md",
        "concepts/lanes.md",
        "decisions/README.md",
        "decisions/0001-a.md",
        "internals/README.md",
        "internals/zebra.md",
        "measured/b.md",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    nav = nav_of(tmp_path)
    assert sorted(entries(nav)) == sorted(names)
    text = with_nav("site_name: x\nnav: # generated\n  - old.md\n# end of nav\n", tmp_path)
    assert yaml.safe_load(text) == {"site_name": "x", "nav": nav}


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("a\n<!-- not run: why -->\n```sh\nx\n```\n", "a\n```sh\nx\n```\n"),
        ("<!-- setup\nx = 1\n-->\nb\n", "b\n"),
        ("```html\n<!-- kept -->\n```\n", "```html\n<!-- kept -->\n```\n"),
        ("a `<!-- kept -->` b", "a `<!-- kept -->` b"),
        (
            "[a](lanes.md#x) [b](https://example.org) [c](#d)",
            "[a](lanes.md#x) [b](https://example.org) [c](#d)",
        ),
        ("[the source](../../src/leasehold/types.py)", "the source (`src/leasehold/types.py`)"),
        ("[README](../../README.md#use-it)", "`README.md`"),
        ("[`ARCHITECTURE.md`](../../ARCHITECTURE.md)", "`ARCHITECTURE.md`"),
        ("[bench/peers](../../bench/peers/README.md)", "`bench/peers/README.md`"),
        ("[five](../../examples/README.md)", "[five](../examples.md)"),
        ("[one](../../examples/model_runs/README.md)", "[one](../examples.md#model_runs)"),
        ("[one](../../examples/model_runs)", "[one](../examples.md#model_runs)"),
        ("[its task](../../examples/model_runs/tasks.py)", "its task (`examples/model_runs/tasks.py`)"),
        ("[all](../decisions)", "[all](../decisions/README.md)"),
        ("`[a](../../README.md)`", "`[a](../../README.md)`"),
        ("[a long\ntext](../../LICENSE)", "a long\ntext (`LICENSE`)"),
        ("[`x`](../../LICENSE) and [y](lanes.md)", "`x` (`LICENSE`) and [y](lanes.md)"),
        ("so:\n- a\n  b\n- c", "so:\n\n- a\n  b\n- c"),
        ("```sh\nso:\n- a\n```\n", "```sh\nso:\n- a\n```\n"),
    ],
)
def test_a_page_is_made_fit_for_the_site(text: str, fit: str) -> None:
    assert fit_for_site(text, ROOT, "docs/concepts/page.md") == fit


def test_what_the_site_would_take_out_of_its_list_is_refused() -> None:
    with pytest.raises(Unfit, match=r"docs/a\.md:2: indent"):
        fit_for_site("- a\n  - b\n", ROOT, "docs/a.md")


class Parts(HTMLParser):
    """What a page links to, what it loads, what can be linked to in it, and its comments."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.comments: list[str] = []
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        self.classes.update(values.get("class", "").split())
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADS and LOADS[tag] in values and values.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(values[LOADS[tag]])

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it. zensical itself refuses a link that leads nowhere."""
    folder = tmp_path_factory.mktemp("docs")
    pages = build(ROOT, folder / "work", folder / "site")
    assert pages == len(list(DOCS.rglob("*.md")))
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Parts]:
    return {
        page: Parts(page.read_text(encoding="utf-8"))
        for page in sorted(site.rglob("*.html"))
        if page.name != "404.html"
    }


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


on_the_site = [pytest.mark.slow, pytest.mark.xdist_group("docs site")]


class TestBuilt:
    pytestmark = on_the_site

    def test_every_link_and_every_picture_leads_somewhere(self, site: Path, pages: dict[Path, Parts]) -> None:
        wrong = []
        for page, parts in pages.items():
            for link in parts.links + parts.loads:
                address = urlsplit(link)
                if address.scheme:
                    continue
                goal = (page.parent / unquote(address.path)).resolve() if address.path else page
                goal = goal / "index.html" if goal.is_dir() else goal
                known = pages.get(goal)
                anchor = unquote(address.fragment)
                if not goal.is_file() or (anchor and known is not None and anchor not in known.anchors):
                    wrong.append(f"{page.relative_to(site)}: {link}")
        assert not wrong

    def test_no_page_names_another_host_for_what_it_loads(self, site: Path, pages: dict[Path, Parts]) -> None:
        assert {load for parts in pages.values() for load in parts.loads if urlsplit(load).netloc} == set()
        loaded = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')]+)")
        texts = [
            path.read_text(encoding="utf-8")
            for suffix in ("css", "svg")
            for path in site.rglob(f"*.{suffix}")
        ]
        assert texts
        # The theme's script would load these from a CDN.
        assert (
            set().union(*(parts.classes for parts in pages.values())) & {"mermaid", "glightbox", "pyodide"}
            == set()
        )
        assert [found for text in texts for found in loaded.findall(text)] == []

    def test_no_mark_of_the_tests_is_left(self, site: Path, pages: dict[Path, Parts]) -> None:
        assert [one for parts in pages.values() for one in parts.comments if one.strip()] == []
        shown = (site / "search.json").read_text(encoding="utf-8")
        reasons = {block.not_run for page in walked_pages() for block in read_page(page).blocks} - {None}
        assert reasons
        assert [reason for reason in reasons if str(reason) in shown] == []  # a page may print "not run:"


def widest_pages() -> list[str]:
    """Of every folder the two pages with the longest row of a table: a browser takes seconds for each."""
    chosen = []
    for folder in [DOCS, *(path for path in sorted(DOCS.iterdir()) if path.is_dir())]:
        by_width = {
            page: max(
                (len(line) for line in page.read_text(encoding="utf-8").split("\n") if line[:1] == "|"),
                default=0,
            )
            for page in folder.glob("*.md")
        }
        chosen += sorted(by_width, key=lambda page: (-by_width[page], page))[:2]
    names = [page.relative_to(DOCS).with_suffix(".html").as_posix() for page in chosen]
    return [name.replace("README.html", "index.html") for name in names]


class TestInABrowser:
    pytestmark = on_the_site

    def test_pages_fit_a_phone_and_ask_no_other_host(self, chromium: Browser, served: str) -> None:
        requested: list[str] = []

        def note(request: Request) -> None:
            if not request.url.startswith((served, "data:", "blob:")):
                requested.append(request.url)

        with screen(chromium, served, viewport=PHONE) as made:
            made.context.on("request", note)
            shown = made.open("/index.html")
            for name in widest_pages():
                shown.goto(f"{served}/{name}", wait_until="load")
                assert overflow(shown) <= 0, f"{name} is wider than a phone"
                broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
                assert shown.evaluate(broken) == [], name
            made.check_quiet()
        assert requested == []

    @pytest.mark.parametrize("opened_from", ["server", "folder"])
    def test_search_finds_a_page(self, chromium: Browser, served: str, site: Path, opened_from: str) -> None:
        url = served if opened_from == "server" else site.as_uri()
        with screen(chromium, url) as made:
            shown = made.open("/index.html")
            shown.get_by_role("button", name="Search").first.click()
            # In one go: on a busy machine the theme drops letters that are typed while it redraws its field.
            shown.get_by_role("combobox", name="Search").fill("budgets")
            found = shown.locator("a[href*='concepts/budgets.html']", has_text="Budgets")
            found.locator("visible=true").first.wait_for(timeout=PATIENCE)
            made.check_quiet()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_follows_the_readers_scheme(self, chromium: Browser, served: str, scheme: Any) -> None:
        with screen(chromium, served, color_scheme=scheme) as made:
            shown = made.open("/concepts/overview.html")
            expected = "slate" if scheme == "dark" else "default"
            shown.locator(f"body[data-md-color-scheme={expected}]").wait_for(timeout=PATIENCE)


def test_drawn_pictures_describe_themselves_and_have_a_dark_scheme() -> None:
    pictures = sorted((DOCS / "images").glob("*.svg"))
    assert {"adoption.svg", "lane.svg", "states.svg"} <= {path.name for path in pictures}
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        drawing = ElementTree.fromstring(text)
        for name in ("title", "desc"):
            found = drawing.find(f"{{http://www.w3.org/2000/svg}}{name}")
            assert found is not None, path.name
            assert found.get("id") in str(drawing.get("aria-labelledby")).split(), path.name
        assert "prefers-color-scheme: dark" in text, path.name


def test_the_picture_of_the_states_is_refused_when_a_move_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**TRANSITIONS, (State.FAILED, Trigger.RELEASE): frozenset({State.PENDING})}
    monkeypatch.setattr(state_picture, "TRANSITIONS", more)
    with pytest.raises(SystemExit, match="failed → pending"):
        state_picture.states_svg()
