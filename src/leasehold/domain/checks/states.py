"""Checks the names of states."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.domain.errors import InvalidInput
from leasehold.domain.states import State


def checked_states(states: State | str | Iterable[State | str]) -> tuple[State, ...]:
    """Return one state or several."""
    return tuple(map(_checked, (states,) if isinstance(states, str) else states))


def _checked(name: State | str) -> State:
    try:
        return State(name)
    except ValueError:
        raise InvalidInput("state", f"{name!r} is not a state", f"known: {', '.join(State)}") from None
