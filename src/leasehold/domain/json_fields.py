"""Marks on the fields of records: how a field looks in JSON, for every caller outside of the process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    shown = property
else:

    class shown(property):
        """A property that stands in the record's JSON beside its fields."""


class Encoded:
    """The text is JSON; in the record's JSON stands its value, of this type."""

    def __init__(self, kind: Any = Any) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # the domain is imported where nothing is validated

        return core_schema.no_info_before_validator_function(_encode, handler(source))


class Private:
    """Stays inside: not in the record's JSON. A record that is read from JSON has this value instead."""

    def __init__(self, instead: Any = None) -> None:
        self.instead = instead

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_default_schema(core_schema.any_schema(), default=self.instead)


EncodedObject = Annotated[str, Encoded(dict[str, Any])]
EncodedJson = Annotated[str | None, Encoded()]


def _encode(value: object) -> str | None:
    return None if value is None else json.dumps(value)
