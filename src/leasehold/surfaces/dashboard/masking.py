"""Masks secrets in settings before a page shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

PREFIX = "LEASEHOLD_"
HIDDEN = "set, not shown"
_HARMLESS = frozenset(
    f"{PREFIX}{name}" for name in ("ACTOR", "APP", "DEMO", "EXECUTIONS", "RESULTS", "SCHEMA", "TENANT")
)
"""Variables whose values are shown. Any other may be a secret."""


def masked_url(url: str) -> str:
    """The URL without user, password and options. If it cannot be parsed reliably, only the scheme is shown: a password
    that is not escaped ends up in other parts."""
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
    """Our environment variables by name, with secrets masked."""
    return [
        (name, _shown(name, value))
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and value
    ]


def _shown(name: str, value: str) -> str:
    if name == f"{PREFIX}URL":
        return masked_url(value)
    return value if name in _HARMLESS else HIDDEN
