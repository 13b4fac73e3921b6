"""A JSON value as a tree for a page, with limits of width, depth and text, because jobs can store any value. Pure."""

from __future__ import annotations

import json
from typing import Any, Literal

from leasehold.domain.frozen import frozen
from leasehold.domain.sensitive import HIDDEN

MOST_NODES = 1000
DEEPEST = 24
LONGEST_TEXT = 4000

NodeKind = Literal["object", "array", "text", "value", "secret", "cut"]


@frozen
class Node:
    kind: NodeKind
    key: str | None
    text: str
    """The text to show; for an object or array, the number of its items."""
    children: tuple[Node, ...] = ()
    depth: int = 0


def tree_of(value: Any) -> Node:
    return _Tree().node(value, None, 0)


def tree_of_text(text: str | None) -> Node:
    """The tree of encoded JSON. Text that is not JSON is shown as it is."""
    if text is None:
        return Node("value", None, "null")
    try:
        return tree_of(json.loads(text))
    except (ValueError, RecursionError):
        return Node("text", None, _cut(text))


class _Tree:
    def __init__(self) -> None:
        self._left = MOST_NODES

    def node(self, value: Any, key: str | None, depth: int) -> Node:
        self._left -= 1
        match value:
            case dict():
                items = [(str(name), item) for name, item in value.items()]
                return self._inner("object", key, items, depth, _many(len(items), "field"))
            case list():
                items = [(str(place), item) for place, item in enumerate(value)]
                return self._inner("array", key, items, depth, _many(len(items), "item"))
            case str() if value == HIDDEN:
                return Node("secret", key, "hidden", depth=depth)
            case str():
                return Node("text", key, _cut(value), depth=depth)
            case _:
                return Node("value", key, _cut(json.dumps(value)), depth=depth)

    def _inner(
        self, kind: NodeKind, key: str | None, items: list[tuple[str, Any]], depth: int, text: str
    ) -> Node:
        children: list[Node] = []
        for name, item in items:
            if self._left <= 0 or depth >= DEEPEST:
                children.append(
                    Node("cut", None, f"{_many(len(items) - len(children), 'more')}", depth=depth + 1)
                )
                break
            children.append(self.node(item, name[:200], depth + 1))
        return Node(kind, key, text, tuple(children), depth)


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 or word == "more" else f"{count:,} {word}s"


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… and {len(text) - LONGEST_TEXT:,} characters more"
