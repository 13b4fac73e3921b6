"""A small web on the loopback address, as a process of its own: it is an HTTP proxy behind which every host is
ours.

    python -m examples.research_agent.loopback_web        # prints its address

Seven search engines, two academic APIs and eight sites, with redirects, robots rules, slow and broken pages.
Sites whose name begins with `guarded` show a CAPTCHA until a visitor brings the answer to it as a cookie. It
ends when its stdin ends.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from .web_pages import Page, Paper, make_contents

CONTENTS = make_contents()
ENGINES = ("duckduckgo", "mojeek", "google", "brave", "ecosia", "startpage", "bing")
SLOW = float(os.environ.get("SLOW_SECONDS", "3"))
GUARDED_PAPER = "P001"
"""Its citations are behind a CAPTCHA."""
SLOW_ENGINE = "brave"
"""Takes half a second for an answer, so that searches have time to meet there."""
seen: dict[str, int] = {}
"""How often each address was asked for: /hits tells, so that a test can see what was not fetched twice."""
asked_at: dict[str, list[float]] = {}
"""When each host was asked, on the machine's monotonic clock; with `peaks` behind /load."""
peaks: dict[str, int] = {}
"""How many visitors were at a slow place at once, at most."""
_inside: dict[str, int] = {}
_counting = threading.Lock()


def linger(place: str, seconds: float) -> None:
    """Be slow, and count who is here at the same time. The answer is sent afterwards: a visitor that has its answer and
    comes again is never counted twice."""
    with _counting:
        _inside[place] = _inside.get(place, 0) + 1
        peaks[place] = max(peaks.get(place, 0), _inside[place])
    time.sleep(seconds)
    with _counting:
        _inside[place] -= 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        seen[self.path] = seen.get(self.path, 0) + 1
        host, query = url.hostname or "", {key: values[0] for key, values in parse_qs(url.query).items()}
        asked_at.setdefault(host, []).append(time.monotonic())
        if not host and url.path == "/hits":
            self._json(seen)
        elif not host and url.path == "/load":
            self._json({"asked_at": asked_at, "peaks": peaks})
        elif url.path == "/robots.txt":
            self._send(200, "User-agent: *\nDisallow: /private/\n", "text/plain")
        elif host.removesuffix(".example") in ENGINES:
            self._engine(host.removesuffix(".example"), query.get("q", ""))
        elif host == "api.semanticscholar.example":
            self._semantic_scholar(url.path, query)
        elif host == "api.openalex.example":
            self._openalex(query)
        else:
            self._page(host, url.path, self.path)

    def _page(self, host: str, path: str, address: str) -> None:
        site = host.removesuffix(".example")
        if site.startswith("guarded") and not self._let_in(site):
            return
        if path.startswith("/slow"):
            linger("slow pages", SLOW)
            path = "/orla-basalt-aquifers"
        elif path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", f"http://{host}/{path.removeprefix('/moved/')}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        elif path.startswith("/broken"):
            self._send(500, "out of order", "text/plain")
            return
        page = CONTENTS.pages.get(address) or CONTENTS.pages.get(f"http://geology.example{path}")
        if page is None:
            self._send(404, "no such page", "text/plain")
        else:
            self._send(200, _html(page), "text/html")

    def _let_in(self, name: str) -> bool:
        """The puzzle is a sum; whoever has solved it carries the answer as a cookie."""
        a, b = 3 + len(name), 4
        if f"captcha={a + b}" in (self.headers.get("Cookie") or ""):
            return True
        page = (
            f"<html><body><form class='captcha'>Are you human? What is {a} + {b}?<input></form></body></html>"
        )
        self._send(403, page, "text/html")
        return False

    def _engine(self, engine: str, query: str) -> None:
        if engine == "ecosia":  # is never well
            self._send(503, "come back later", "text/plain")
            return
        if engine == SLOW_ENGINE:
            linger("search engine", 0.5)
        offset = ENGINES.index(engine)
        found = _search(query, [(page.title, page.url) for page in CONTENTS.pages.values()])
        found = found[offset % 3 :][:8]
        items = "".join(
            f"<li><a class='result' href='{html.escape(url)}'>{title}</a></li>" for title, url in found
        )
        self._send(200, f"<html><body><ol>{items}</ol></body></html>", "text/html")

    def _semantic_scholar(self, path: str, query: dict[str, str]) -> None:
        if (requested := re.fullmatch(r"/graph/v1/paper/(P\d+)/references", path)) is not None:
            if requested[1] == GUARDED_PAPER and not self._let_in("semantic_scholar"):
                return
            paper = CONTENTS.papers.get(requested[1])
            cited = [CONTENTS.papers[one] for one in paper.cites] if paper else []
            self._json({"data": [{"citedPaper": _scholar(one)} for one in cited]})
        else:
            self._json({"data": [_scholar(one) for one in _papers(query.get("query", ""))[0::2]]})

    def _openalex(self, query: dict[str, str]) -> None:
        found = _papers(query.get("search", ""))[1::2]
        self._json(
            {
                "results": [
                    {
                        "id": p.paper_id,
                        "display_name": p.title,
                        "abstract": p.abstract,
                        "landing_page_url": p.url,
                    }
                    for p in found
                ]
            }
        )

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value), "application/json")

    def _send(self, status: int, body: str, kind: str) -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """stdout is for the address alone."""


def _search(query: str, titles: list[tuple[str, str]]) -> list[tuple[str, str]]:
    wanted = set(re.findall(r"\w+", query.lower()))
    ranked = [(len(wanted & set(re.findall(r"\w+", title.lower()))), title, url) for title, url in titles]
    return [(title, url) for score, title, url in sorted(ranked, key=lambda one: -one[0]) if score > 1]


def _papers(query: str) -> list[Paper]:
    found = _search(query, [(paper.title, paper.paper_id) for paper in CONTENTS.papers.values()])
    return [CONTENTS.papers[paper_id] for _, paper_id in found[:2]]


def _scholar(paper: Paper) -> dict[str, str]:
    return {"paperId": paper.paper_id, "title": paper.title, "abstract": paper.abstract, "url": paper.url}


def _html(page: Page) -> str:
    text = "".join(f"<p>{html.escape(one)}</p>" for one in page.paragraphs)
    links = "".join(f"<a href='{quote(one, safe=':/')}'>more</a>" for one in page.links)
    return (
        f"<html><head><title>{page.title}</title></head><body><nav><a href='/'>Home</a><a href='/a'>About</a></nav>"
        f"<article><h1>{page.title}</h1>{text}</article><aside>{links}</aside>"
        "<footer>We use cookies. All rights reserved.</footer></body></html>"
    )


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A visitor that was killed leaves in mid-answer; that is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # whoever started it holds the other end


if __name__ == "__main__":
    main()
