"""Templates of lanes, keys, rates, tags and slots: text with `{argument}` in it."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from leasehold.domain.checks.names import storable_name
from leasehold.domain.errors import InvalidTask


def fill_template(
    template: str, arguments: Mapping[str, Any], field: str, long_names: dict[str, str] | None = None
) -> str:
    """Fill the template; the result has the form that stores keep. `long_names` gets the full name if it was cut."""
    whole = template.format_map(arguments)
    name = storable_name(whole, field)
    if long_names is not None and name != whole:
        long_names[name] = whole
    return name


def is_template(text: str) -> bool:
    """Return whether the text must be formatted. Literal braces are written twice, so they need formatting too."""
    return "{" in text or "}" in text


def check_template(task: str, field: str, template: str | None, arguments: set[str]) -> None:
    if template is None:
        return
    try:
        parts = list(string.Formatter().parse(template))
    except (ValueError, TypeError) as error:
        raise InvalidTask(
            field, f"{template!r} is not a template ({error})", "write {argument} or plain text"
        ) from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if name not in arguments or spec or conversion:
            listed = ", ".join(sorted(arguments)) or "none"
            raise InvalidTask(
                field, f"{template!r} names {name!r}", f"task {task!r} has these arguments: {listed}"
            )
