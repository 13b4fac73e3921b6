"""Forms: a question as a form that an MCP client shows, and the filled form as an answer.

A form is a flat object of texts, numbers, choices and booleans. A question may require any JSON value: a schema that is
no such object becomes a form with the single field `value`, and a value that no field can show is typed as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from leasehold.domain.errors import InvalidInput

FIELD = "value"
_PLAIN = frozenset({"string", "number", "integer", "boolean"})
_KEPT = frozenset(
    {
        "type",
        "title",
        "description",
        "default",
        "enum",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "format",
        "pattern",
    }
)


def form_of(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of a form whose content `answer_of` turns into an answer."""
    if schema is not None and _is_flat(schema):
        fields = {name: _field(one) for name, one in schema.get("properties", {}).items()}
        return {"type": "object", "properties": fields, "required": list(schema.get("required", []))}
    return {"type": "object", "properties": {FIELD: _value_field(schema)}, "required": [FIELD]}


def answer_of(schema: Mapping[str, Any] | None, content: Mapping[str, Any]) -> Any:
    """The answer from a filled form. Raises InvalidInput for a field that should be JSON and is not."""
    if schema is not None and _is_flat(schema):
        return dict(content)
    if FIELD not in content:
        raise InvalidInput(FIELD, "is missing", "fill in the form")
    value = content[FIELD]
    if schema is not None and is_plain(schema):
        return value
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidInput(
            FIELD, "is not JSON", "give a JSON value that fits the question's schema"
        ) from None


def is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether a single field of a form can show it."""
    return schema.get("type") in _PLAIN


def _is_flat(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and isinstance(properties, dict)
        and bool(properties)
        and all(isinstance(one, dict) and is_plain(one) for one in properties.values())
    )


def _field(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key in _KEPT}


def _value_field(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if schema is not None and is_plain(schema):
        return _field(schema)
    wanted = "" if not schema else f" that fits {json.dumps(schema)}"
    return {"type": "string", "description": f"A JSON value{wanted}"}
