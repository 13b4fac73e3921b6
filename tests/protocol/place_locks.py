"""The lock order of the place protocol: which rows each caller locks, one by one, and whether a crowd can deadlock.

Rows of three jobs: anchors `j`, places `r` (ready), `l` (lease) and `o` (outcome), keys `k`, groups `g`. A hot
statement locks in the order of its plan, which nobody promises, so every order of it is tried. It skips what is locked,
so it is in no circle. All others wait, and meet first at the anchors, by number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations, product

WAIT, SKIP = True, False
Program = tuple[tuple[str, bool], ...]

# One lease has one holder: two of these never meet at a row.
NEVER_MEET = frozenset(
    (("settle", "settle"), ("renew", "renew"), ("tied settle", "tied settle"), ("settle", "tied settle"))
)

# What is done otherwise, and between whom it must end in a deadlock.
MUTANTS = {
    "settle waits for a locked lease": "settle",
    "renew waits for a locked lease": "renew",
    "claim waits for a locked row": "claim",
    "waves lock as they go": "settle with children",
    "groups are locked as they come": "tied settle",
    "prune locks the outcome first": "prune",
    "resume takes its key before the anchor": "resume with a key",
    "a bulk enqueue inserts keys before it replaces": "bulk enqueue, replaces 1",
}


@dataclass(frozen=True)
class Crowds:
    """What a walk over every crowd has found."""

    crowds: int
    states: int
    deadlock: tuple[str, ...] = ()


def programs(mutant: str = "") -> dict[str, list[Program]]:
    """Each caller's ways to lock its rows."""
    by_caller: dict[str, list[Program]] = {}

    def hot(caller: str, rows: str, then: str = "") -> None:
        waits = mutant.startswith(f"{caller} waits")
        tail = _waiting(then)
        by_caller[caller] = [
            (*((row, waits) for row in order), *tail) for order in permutations(rows.split())
        ]

    def careful(caller: str, rows: str) -> None:
        by_caller[caller] = [_waiting(rows)]

    hot("claim", "r0 r1 r2")
    hot("settle", "l0 l1 l2")
    hot("renew", "l0 l1 l2")
    unsorted = mutant == "groups are locked as they come"
    hot("tied settle", "l0 l1", "k0 k1 g1 g0" if unsorted else "k0 k1 g0 g1")
    hot("tied settle of 2", "l2", "k2 g0 g1")
    careful("renew, one by one", "l1")  # it holds nothing while it waits
    by_caller["reap"] = [(("j0", SKIP), ("j1", SKIP), ("l0", SKIP), ("l1", SKIP))]
    careful("stop", "j0 j1 j2 r0 r1 r2 l0 l1 l2 k0 k1 g0 g1")
    careful("stop of 1 and 2", "j1 j2 r1 r2 l1 l2 g0 g1")
    careful("decided settle", "j0 j2 l0 l2 k0 g0 g1")
    careful("cancel", "j1 r1 l1 k1 g1")
    careful("enqueue after 0 and 1", "j0 j1 r0 r1 l0 l1 g1")
    careful("lent transaction", "j1 g0")
    waves = mutant == "waves lock as they go"
    careful("settle with children", "j0 l0 j2 r2 j1 r1 g0 g1" if waves else "j0 j1 j2 r1 r2 l0 g0 g1")
    careful("enqueue with a key", "k0 g0")
    early = mutant == "resume takes its key before the anchor"
    careful("resume with a key", "k1 j1 o1 g1" if early else "j1 o1 k1 g1")
    careful("resume of 1 and 2, with a key", "j1 j2 o2 k0 g1")
    # Read who holds the keys, lock those anchors, then insert: another key may be waited for meanwhile.
    keys_first = mutant == "a bulk enqueue inserts keys before it replaces"
    careful("bulk enqueue, replaces 1", "k0 j1 r1 l1 k1 g0 g1" if keys_first else "j1 r1 l1 k0 k1 g0 g1")
    late = mutant == "prune locks the outcome first"
    by_caller["prune"] = [(("o1", WAIT), ("j1", WAIT)) if late else (("j1", SKIP), ("o1", WAIT))]
    return by_caller


def _waiting(rows: str) -> Program:
    return tuple((row, WAIT) for row in rows.split())


def can_deadlock(crowd: tuple[Program, ...]) -> tuple[int, bool]:
    """Walk every interleaving. A state in which nobody can move and somebody has not committed is a deadlock."""
    start = ((0,) * len(crowd), ())
    seen, waiting = {start}, [start]
    while waiting:
        positions, held = waiting.pop()
        moved = False
        for after in _steps(crowd, positions, held):
            moved = True
            if after not in seen:
                seen.add(after)
                waiting.append(after)
        if not moved and any(at <= len(program) for at, program in zip(positions, crowd, strict=True)):
            return len(seen), True
    return len(seen), False


def _steps(
    crowd: tuple[Program, ...], positions: tuple[int, ...], held: tuple[tuple[str, int], ...]
) -> Iterator[tuple[tuple[int, ...], tuple[tuple[str, int], ...]]]:
    owner_of = dict(held)
    for caller, program in enumerate(crowd):
        at = positions[caller]
        if at > len(program):
            continue  # committed
        onward = (*positions[:caller], at + 1, *positions[caller + 1 :])
        if at == len(program):
            yield onward, tuple(lock for lock in held if lock[1] != caller)
            continue
        row, waits = program[at]
        owner = owner_of.get(row, caller)
        if owner == caller:
            yield onward, tuple(sorted({**owner_of, row: caller}.items()))
        elif not waits:
            yield onward, held


def crowds(mutant: str = "") -> Iterator[tuple[tuple[str, ...], tuple[Program, ...]]]:
    """Every pair of callers with every plan, then every three different callers with three plans each."""
    by_caller = programs(mutant)
    for names in combinations_with_replacement(by_caller, 2):
        if names not in NEVER_MEET:
            for pair in product(*(by_caller[name] for name in names)):
                yield names, pair
    few = {name: list(dict.fromkeys((*plans[:2], plans[-1]))) for name, plans in by_caller.items()}
    for names in combinations_with_replacement(by_caller, 3):
        if len(set(names)) == 3:
            for triple in product(*(few[name] for name in names)):
                yield names, triple


def walk_crowds(mutant: str = "") -> Crowds:
    """Walk every crowd; stop at the first deadlock."""
    count = states = 0
    for names, crowd in crowds(mutant):
        walked, deadlocked = can_deadlock(crowd)
        count += 1
        states += walked
        if deadlocked:
            return Crowds(count, states, names)
    return Crowds(count, states)
