"""The fields that a form sends, up to a limit of size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.surfaces.guard.denied import Denied

LARGEST = 4 * 1024 * 1024
"""Bytes. Arguments have at most one MiB, and a form encodes some characters as three."""
MOST_FIELDS = 500


@frozen
class Form:
    fields: Mapping[str, str]

    def text(self, name: str) -> str:
        """The text of a field. Raises InvalidInput if it is missing or empty."""
        value = self.fields.get(name, "")
        if not value:
            raise InvalidInput(name, "is empty", "fill it in")
        return value

    def maybe(self, name: str) -> str | None:
        return self.fields.get(name, "").strip() or None

    def has(self, name: str) -> bool:
        """Whether a checkbox is ticked."""
        return bool(self.fields.get(name))

    def whole(self, name: str) -> int:
        text = self.text(name).strip().replace(",", "").replace("_", "")
        try:
            return int(text)
        except ValueError:
            raise InvalidInput(name, f"{text!r} is not a whole number", "write it in digits") from None

    def json(self, name: str) -> Any:
        return parsed(self.text(name), name)


def carried(name: str, value: object) -> tuple[str, str]:
    """The name and value of a hidden field that must come back unchanged. Browsers change line ends, and pages replace
    control characters; a text with either is sent as JSON, under a name that ends with a star."""
    text = str(value)
    return (name, text) if text.isprintable() else (f"{name}*", json.dumps(text))


def parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(name, f"is not JSON: {error}", 'write texts in quotes, such as "yes"') from None


async def read(request: Request) -> Form:
    """Read the form of a request. Raises Denied if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Denied("too-large", f"the form has more than {LARGEST:,} bytes")
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, strict_parsing=False, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise InvalidInput("form", "cannot be read", "send it again") from None
    return Form(dict(_taken(name, value) for name, value in pairs))


def _taken(name: str, value: str) -> tuple[str, str]:
    return (
        (name[:-1], str(parsed(value, name))) if name.endswith("*") else (name, value.replace("\r\n", "\n"))
    )
