"""A verb that a form asks for. Its name is the one that the audit has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.domain.tokens import TokenScope
from leasehold.operations.verb import Verb
from leasehold.surfaces.dashboard.forms import Form
from leasehold.surfaces.dashboard.page_request import PageRequest


@frozen
class Done:
    """What a person is told."""

    text: str
    go: str | None = None
    """Where to go on; None: to the page that asked."""


@frozen
class Action:
    name: str
    scope: TokenScope
    run: Callable[[PageRequest, Form], Done]
    """Raises our errors, which the page shows. It runs in a thread."""


def of(verb: Verb[..., Any], run: Callable[[PageRequest, Form], Done]) -> Action:
    """Of a verb of the table: its name and its scope are said there."""
    return Action(verb.name, verb.scope, run)
