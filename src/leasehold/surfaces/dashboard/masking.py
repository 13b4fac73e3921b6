"""Settings as a page may show them: nothing that opens a door. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

PREFIX = "LEASEHOLD_"
HIDDEN = "set, not shown"
_HARMLESS = frozenset(
    f"{PREFIX}{name}" for name in ("ACTOR", "APP", "DEMO", "RESULTS", "RUNS", "SCHEMA", "TENANT")
)
"""What is not known here may be a secret."""


def masked_url(url: str) -> str:
    """Where it leads, without user, password and options. One that cannot be told apart is not shown at all: a
    password that is not escaped ends up in the other parts."""
    scheme, found, rest = url.partition("://")
    if not found:
        return HIDDEN
    if scheme == "sqlite":
        return url.partition("?")[0]
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return f"{scheme}://…"
    if rest.count("@") > 1 or "@" in parts.path or "@" in host:
        return f"{scheme}://…"
    before = "…@" if "@" in parts.netloc else ""
    after = "?…" if parts.query else ""
    return f"{scheme}://{before}{host}{f':{port}' if port else ''}{parts.path}{after}"


def shown_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Ours, by name."""
    return [
        (name, _shown(name, value))
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and value
    ]


def _shown(name: str, value: str) -> str:
    if name == f"{PREFIX}URL":
        return masked_url(value)
    return value if name in _HARMLESS else HIDDEN
