"""Checks texts that people give: names (of queues, tasks, lanes, keys, groups, tags, tenants), free texts,
templates.

Every store keeps them unchanged.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from leasehold.domain.checks.payload import check_text
from leasehold.domain.errors import InvalidInput, InvalidTask

LONGEST_ACTOR = 200
LONGEST_TRACE = 2_000
LONGEST_REASON = 16_384
LONGEST_CRITERION = 16_384
"""Longer than any name: a search for a name that cannot exist finds nothing, and raises no error."""


def checked_text(text: object, field: str, longest: int) -> str:
    if not isinstance(text, str):
        raise InvalidInput(field, f"{text!r} is not text", "give a text")
    if len(text) > longest:
        raise InvalidInput(field, f"has {len(text):,} characters", f"use at most {longest:,}")
    return check_text(text, field)


def checked_actor(actor: object) -> str | None:
    return None if actor is None else checked_text(actor, "actor", LONGEST_ACTOR)


def checked_reason(reason: object) -> str | None:
    return None if reason is None else checked_text(reason, "reason", LONGEST_REASON)


def checked_trace(trace: object) -> str | None:
    return None if trace is None else checked_text(trace, "trace", LONGEST_TRACE)


def checked_criterion(value: object, field: str) -> str | None:
    """Return a filter value of a list: a queue, a task, a lane, a group or a tag."""
    return None if value is None else checked_text(value, field, LONGEST_CRITERION)


def check_choice(
    field: str, value: object, choices: object, error: type[InvalidInput] = InvalidInput
) -> None:
    """Raise the error unless the value is one of a Literal's."""
    known = get_args(choices)
    if value not in known:
        raise error(field, f"{value!r} is not known", "use " + " or ".join(map(repr, known)))


# -- names -------------------------------------------------------------------------------------------------------------

LONGEST_NAME = 200


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")


_TENANT = re.compile(r"[a-z][a-z0-9_]{0,47}")
EVERY_TENANT = "all"
"""Stands for all tenants, so no tenant may have this name."""


Names = str | Iterable[str] | None

_BEGINNING, _DIGITS = 160, 24
SHORTENED = re.compile(f".{{{_BEGINNING}}}…[0-9a-f]{{{_DIGITS}}}", re.DOTALL)
"""Matches a long name in the form that stores keep; it may be part of a longer text."""


def checked_name(name: object, field: str) -> str:
    """Return the name of a queue, task, lane, key, group or tag: short text that every store can keep."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(field, f"{name!r} is not a name", "give a text that is not empty")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(field, f"has {len(name)} characters", f"use at most {LONGEST_NAME}")
    check_text(name, field)
    if field in ("task", "queue") and not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} is not a {field} name", "use letters, digits and _ . : -")
    return name


def checked_tenant(name: object) -> str:
    """Return the tenant's name. It becomes part of a schema's name or of a file's name."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name) or name == EVERY_TENANT:
        raise InvalidInput(
            "tenant",
            f"{name!r} is not a tenant's name",
            "use lower-case letters, digits and _, starting with a letter, at most 48 characters, and not 'all'",
        )
    return name


def storable_name(name: object, field: str) -> str:
    """Return a lane, key, tag, slot or rate of any length in the form that stores keep: a long name becomes its
    beginning and a hash of the whole. The same name always gives the same text."""
    if not isinstance(name, str) or len(name) <= LONGEST_NAME:
        return checked_name(name, field)
    check_text(name, field)
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGITS // 2).hexdigest()
    return f"{name[:_BEGINNING]}…{digest}"


def checked_names(names: Names, field: str) -> tuple[str, ...] | None:
    """Return one or several names, each once and sorted, so that equal filters compare equal."""
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names)
    return tuple(sorted({storable_name(name, field) for name in listed}))


# -- templates ---------------------------------------------------------------------------------------------------------


def fill_template(
    template: str, arguments: Mapping[str, Any], field: str, full_names: dict[str, str] | None = None
) -> str:
    """Fill the template; the result has the form that stores keep. `full_names` gets the full name if it was cut."""
    full = template.format_map(arguments)
    name = storable_name(full, field)
    if full_names is not None and name != full:
        full_names[name] = full
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
