"""docs/images/states.svg: the states of a job and the events that move it, drawn from TRANSITIONS.

Places and curves are laid out by hand. Which arrows there are, and the events on them, come from the table: a move
that no arrow shows, or an arrow that shows no move, stops the generation.
"""

from __future__ import annotations

from typing import NamedTuple

from leasehold.domain.states import FINAL, HALTED, LIVE, TRANSITIONS, State, Trigger

WIDTH, HEIGHT = 860, 560
BOX_WIDTH, BOX_HEIGHT = 112, 40
PLACES = {
    State.PENDING: (48, 90),
    State.QUEUED: (244, 90),
    State.RUNNING: (464, 90),
    State.WAITING: (354, 216),
    State.PAUSED: (48, 424),
    State.TIMED_OUT: (244, 424),
    State.FAILED: (464, 424),
    State.SUCCEEDED: (724, 90),
    State.CANCELLED: (724, 424),
}
"""The upper left corner of each state's box."""
KINDS = {"live": LIVE, "halted": HALTED, "final": FINAL}
FRAMES = {"live": (20, 30, 590, 250), "halted": (20, 376, 590, 112)}
"""x, y, width and height. An arrow that leaves a frame is one of every state in it."""


class Arrow(NamedTuple):
    sources: frozenset[State]
    target: State
    path: str
    label: tuple[int, int]
    in_a_row: bool = False


ARROWS = [
    Arrow(frozenset({State.PENDING}), State.QUEUED, "M160 110 H240", (176, 103)),
    Arrow(frozenset({State.QUEUED}), State.RUNNING, "M356 110 H460", (390, 103)),
    Arrow(
        frozenset({State.RUNNING}), State.QUEUED, "M490 90 C470 54 360 54 336 87", (372, 56), in_a_row=True
    ),
    Arrow(frozenset({State.RUNNING}), State.WAITING, "M496 130 C494 190 486 226 470 232", (496, 190)),
    Arrow(frozenset({State.WAITING}), State.QUEUED, "M354 232 C320 226 306 190 304 134", (318, 164)),
    Arrow(frozenset({State.RUNNING}), State.SUCCEEDED, "M576 110 H720", (634, 103)),
    Arrow(frozenset({State.RUNNING}), State.FAILED, "M548 130 V420", (556, 318)),
    Arrow(frozenset({State.QUEUED}), State.FAILED, "M336 130 C330 300 380 370 462 426", (384, 352)),
    Arrow(LIVE, State.PAUSED, "M140 280 V420", (148, 312)),
    Arrow(LIVE, State.TIMED_OUT, "M320 280 V420", (328, 312)),
    Arrow(HALTED, State.QUEUED, "M222 376 C222 250 232 170 262 133", (229, 330)),
    Arrow(HALTED - {State.FAILED}, State.PENDING, "M66 376 V134", (73, 312)),
    Arrow(LIVE, State.CANCELLED, "M610 220 C720 226 780 290 780 420", (786, 250)),
    Arrow(HALTED, State.CANCELLED, "M610 444 H720", (634, 412)),
]
ENTRIES = ("M270 12 V86", (278, 24), "enqueue"), ("M104 12 V86", (112, 24), "enqueue, held")
LEGEND = (
    "claim: a worker takes the job.  settle: it reports how the run ended.  reap: its lease ran out.",
    "expire: a time limit has passed.  A running job that is cancelled or paused ends with its worker's settle.",
)
STYLE = """
  .card { fill: #ffffff; stroke: #d5dae1 } .frame { fill: none; stroke: #9aa5b4; stroke-dasharray: 5 4 }
  text { font: 13px system-ui, -apple-system, "Segoe UI", "Noto Sans", Arial, sans-serif; fill: #1b2430 }
  .state { font-weight: 600; text-anchor: middle } .event, .note { font-size: 11.5px; fill: #4a5665 }
  .line { fill: none; stroke: #5b6675; stroke-width: 1.5; marker-end: url(#tip) } .tip { fill: #5b6675 }
  .live { fill: #e8effc; stroke: #1f51c9 } .halted { fill: #fdf0dc; stroke: #b06a00 }
  .final { fill: #e4f4ea; stroke: #1c7a43 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #12161d; stroke: #333c49 } .frame { stroke: #6b7686 }
    text { fill: #e6e9ee } .event, .note { fill: #b4bdc9 }
    .line { stroke: #9aa5b4 } .tip { fill: #9aa5b4 }
    .live { fill: #16264d; stroke: #7ea2ff } .halted { fill: #3a2a0e; stroke: #e0a04a }
    .final { fill: #123222; stroke: #5fc78a }
  }
"""


def states_svg() -> str:
    moves = _moves()
    drawn = {(source, arrow.target) for arrow in ARROWS for source in arrow.sources}
    if drawn != set(moves):
        wrong = ", ".join(f"{source} → {target}" for source, target in sorted(drawn ^ set(moves)))
        raise SystemExit(f"tools/state_picture.py and TRANSITIONS differ on: {wrong}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="title desc">',
        '<title id="title">The states of a job</title>',
        f'<desc id="desc">{_reported(moves)}</desc>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto" markerUnits="userSpaceOnUse"><path class="tip" d="M0 0 8 4 0 8Z"/></marker></defs>',
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
    ]
    for task, (x, y, width, height) in FRAMES.items():
        parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        parts.append(f'<text class="note" x="{x + 10}" y="{y + height - 10}">{task}</text>')
    for path, at, text in ENTRIES:
        parts += [f'<path class="line" d="{path}"/>', *_label(at, [text])]
    for arrow in ARROWS:
        parts += [f'<path class="line" d="{arrow.path}"/>', *_label(arrow.label, _words(arrow, moves))]
    for state, (x, y) in PLACES.items():
        task = next(name for name, states in KINDS.items() if state in states)
        parts.append(
            f'<rect class="{task}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
            f'<text class="state" x="{x + BOX_WIDTH // 2}" y="{y + 25}">{state.value}</text>'
        )
    for number, line in enumerate(LEGEND):
        parts.append(f'<text class="note" x="20" y="{518 + 20 * number}">{line}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _moves() -> dict[tuple[State, State], set[Trigger]]:
    moves: dict[tuple[State, State], set[Trigger]] = {}
    for (state, event), targets in TRANSITIONS.items():
        for target in targets - {state}:
            moves.setdefault((state, target), set()).add(event)
    return moves


def _words(arrow: Arrow, moves: dict[tuple[State, State], set[Trigger]]) -> list[str]:
    """The events that lead along an arrow; the states too, where the arrow is not of a whole frame."""
    events = {event for source in arrow.sources for event in moves[source, arrow.target]}
    words = [event.value for event in Trigger if event in events]
    if len(arrow.sources) > 1 and arrow.sources not in KINDS.values():
        words += ["from", *(state.value for state in State if state in arrow.sources)]
    return [", ".join(words)] if arrow.in_a_row else words


def _label(at: tuple[int, int], lines: list[str]) -> list[str]:
    x, y = at
    return [
        f'<text class="event" x="{x}" y="{y + 14 * number}">{line}</text>'
        for number, line in enumerate(lines)
    ]


def _reported(moves: dict[tuple[State, State], set[Trigger]]) -> str:
    sentences = ["A new job is queued, or pending if it is held"]
    for state in State:
        targets = [target.value for target in State if (state, target) in moves]
        sentences.append(
            f"{state.value} leads to {', '.join(targets)}" if targets else f"{state.value} is final"
        )
    return ". ".join(sentences) + "."
