"""Actions: the verbs that forms call. An action has the same name as its verb in the audit."""

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
    """The outcome of an action: the notice for the user, and the next page."""

    text: str
    go: str | None = None
    """The address of the next page; None: the page with the form."""


@frozen
class Action:
    name: str
    scope: TokenScope
    run: Callable[[PageRequest, Form], Done]
    """Runs the action, in a thread. Raises our errors, which the page shows."""


def of(verb: Verb[..., Any], run: Callable[[PageRequest, Form], Done]) -> Action:
    """The action of a verb, with its name and scope from the table of verbs."""
    return Action(verb.name, verb.scope, run)
