"""Templates, their filters and static files. Every value is escaped; none is trusted."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from leasehold.surfaces.dashboard import formatting, forms

HOME = Path(__file__).parent
STATIC = HOME / "static"


def _shown(value: Any) -> Any:
    """The value of an expression in a template, with control characters replaced. Safe markup is left as it is."""
    return formatting.plain(value) if type(value) is str else value


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HOME / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for name in (
        "span",
        "about",
        "ago",
        "clock",
        "number",
        "capped",
        "plural",
        "first_line",
        "clip",
        "short",
    ):
        made.filters[name] = getattr(formatting, name)
    made.globals |= {
        "badge": formatting.badge,
        "looks": formatting.LOOKS,
        "stamp": stamp,
        "carried": forms.carried,
    }
    return made


_TOGETHER = {"live.js": ("vendor/htmx-4.0.0.min.js", "vendor/hx-sse-4.0.0.min.js")}
"""Files that are sent as one. htmx scans the page once, soon after it loads: an extension that loads later is ignored,
and the page would never be updated."""
_MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def static_file(name: str) -> tuple[bytes, str] | None:
    """The content and the media type of a static file. None: no file has this name."""
    parts = [_files().get(part) for part in _TOGETHER.get(name, (name,))]
    found = [part for part in parts if part is not None]
    return (b"\n".join(part.read_bytes() for part in found), _MEDIA[found[0].suffix]) if found else None


@functools.cache
def _files() -> dict[str, Path]:
    """The files that may be sent, by their names. A requested name is looked up here, never on the disk."""
    files = (path for path in STATIC.rglob("*") if path.suffix in _MEDIA)
    return {path.relative_to(STATIC).as_posix(): path for path in files}


@functools.cache
def stamp(name: str) -> str:
    """A digest of a file's content. With it in the address, a browser may keep the file for ever."""
    found = static_file(name)
    assert found is not None, name
    return hashlib.sha256(found[0]).hexdigest()[:12]


def page(template: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(values)


def main_part(template: str, values: Mapping[str, Any]) -> str:
    """The block `main` alone, for the stream of a page."""
    found = _environment().get_template(template)
    context = found.new_context(dict(values))
    return "".join(found.blocks["main"](context))
