"""A breadth-first explorer of explicit states, for protocols small enough to be walked to the last corner.

A model gives four things: the state it starts in, the moves out of a state, what must hold in every state,
and when a state counts as finished. The explorer walks every reachable state once and answers three questions:
did a move or a state break a promise (with the shortest way there, because the walk is breadth-first); which
verbs were ever taken; and from how many states no finished state can be reached any more (AG EF: "whatever
has happened, it can still end well"). A way out that leads through another fault, or through an operator who
gives the job up, is no way out: the model says which moves count.
"""

import gc
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

# A label is (verb, ...): the verb is counted, the rest only tells a trace who did it to what.
Label = tuple[Any, ...]
Move = tuple[Label, Any, str | None]

# A model that lost the guard which bounds it may grow for ever; no setup of ours comes near this.
TOO_MANY = 8_000_000


class Model(Protocol):
    def initial(self) -> Hashable: ...

    def moves(self, state: Any) -> Iterable[Move]:
        """Every (label, next state, broken promise or None) that can follow."""

    def broken_promise(self, state: Any) -> str | None:
        """What does not hold in this state, or None."""

    def finished(self, state: Any) -> bool: ...

    def counts_as_progress(self, state: Any, after: Any) -> bool:
        """May this move be part of a way to a finished state?"""


@dataclass(slots=True)
class Exploration:
    """What a walk has found. `trace` leads to the violation or, without one, to the nearest stuck state."""

    states: int
    edges: int
    violation: str | None = None
    stuck: int = 0
    trace: list[str] = field(default_factory=list)
    verbs: set[str] = field(default_factory=set)

    @property
    def sound(self) -> bool:
        return self.violation is None and self.stuck == 0

    def __str__(self) -> str:
        head = f"{self.states:,} states, {self.edges:,} moves"
        if self.violation is not None:
            return f"{head}; BROKEN: {self.violation}: {' > '.join(self.trace)}"
        if self.stuck:
            return f"{head}; {self.stuck:,} STUCK, the nearest: {' > '.join(self.trace)}"
        return f"{head}; sound"


def explore(model: Model) -> Exploration:
    """Walk every reachable state; stop at the first broken promise."""
    # States are tuples of tuples, never cycles: the collector would look at all of them, again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _walk(model)
    finally:
        if collecting:
            gc.enable()


def _walk(model: Model) -> Exploration:
    start = model.initial()
    number_of: dict[Hashable, int] = {start: 0}
    # A state lives only while it waits for its turn and as a key; the rest is told by number, 4 bytes each.
    came_from = array("i", [-1])
    arrived_by: list[Label | None] = [None]
    edge_from, edge_to = array("i"), array("i")
    finished = bytearray([model.finished(start)])
    verbs: set[str] = set()
    moves, broken_promise, is_finished = model.moves, model.broken_promise, model.finished
    counts_as_progress, edges = model.counts_as_progress, 0

    def trace_to(number: int) -> list[str]:
        steps: list[str] = []
        while number > 0:
            label = arrived_by[number]
            steps.append(spell(label))
            number = came_from[number]
        return steps[::-1]

    frontier = [start]
    while frontier:
        next_frontier = []
        for state in frontier:
            here = number_of[state]
            for label, after, violation in moves(state):
                verbs.add(label[0])
                edges += 1
                there = number_of.get(after)
                if there is None:
                    there = len(came_from)
                    number_of[after] = there
                    came_from.append(here)
                    arrived_by.append(label)
                    finished.append(is_finished(after))
                    next_frontier.append(after)
                    violation = violation or broken_promise(after)
                if violation is not None:
                    trace = [*trace_to(here), spell(label)]
                    return Exploration(len(came_from), edges, violation, 0, trace, verbs)
                if there != here and counts_as_progress(state, after):
                    edge_from.append(here)
                    edge_to.append(there)
            if len(came_from) > TOO_MANY:
                raise RuntimeError(f"more than {TOO_MANY:,} states: the model is not bounded")
        frontier = next_frontier

    can_finish = reaches(finished, edge_from, edge_to)
    stuck = can_finish.count(0)
    trace = trace_to(can_finish.index(0)) if stuck else []
    return Exploration(len(came_from), edges, None, stuck, trace, verbs)


def reaches(goal: bytearray, edge_from: array, edge_to: array) -> bytearray:
    """Mark every state from which some goal state can be reached: the goals, walked backwards."""
    states = len(goal)
    first_edge_into = array("i", bytes(4 * (states + 1)))
    for there in edge_to:
        first_edge_into[there + 1] += 1
    for number in range(states):
        first_edge_into[number + 1] += first_edge_into[number]
    next_free = array("i", first_edge_into)
    predecessors = array("i", bytes(4 * len(edge_to)))
    for here, there in zip(edge_from, edge_to, strict=True):
        predecessors[next_free[there]] = here
        next_free[there] += 1

    marked = bytearray(goal)
    waiting = [number for number in range(states) if marked[number]]
    while waiting:
        there = waiting.pop()
        for here in predecessors[first_edge_into[there] : first_edge_into[there + 1]]:
            if not marked[here]:
                marked[here] = 1
                waiting.append(here)
    return marked


def spell(label: Label | None) -> str:
    return "" if label is None else " ".join(str(part) for part in label if part != "")
