"""Formats an exception as the text to store: what happened in the first line, then where, then its causes."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from pathlib import Path

from leasehold.domain.errors import leaves
from leasehold.domain.transitions import ERROR_LIMIT

OURS = str(Path(__file__).parents[1])
"""The path of our own frames: they say nothing about the user's code."""
FIRST_FRAMES, LAST_FRAMES = 10, 30
"""Frames shown of a deep stack: at its beginning, and where it broke."""
NAMED = 5
"""Most members of a group that its first line names."""
LONGEST_NAME = 200


def describe(error: BaseException) -> str:
    """Describe the error. The first line of a group names its members. Causes and members follow, each with its own
    stack, until the text is longer than a row allows."""
    parts, size = [], 0
    for part in _parts(error):
        parts.append(part)
        size += len(part)
        if size > ERROR_LIMIT:
            break
    return "\n\n".join(parts)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _parts(error: BaseException) -> Iterator[str]:
    """Without recursion: a chain of causes may be longer than the stack is deep, or a cycle."""
    coming: list[tuple[str, BaseException]] = [("", error)]
    seen: set[int] = set()
    while coming:
        how, error = coming.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        yield how + _cut(_head(error), ERROR_LIMIT // 4) if how else _head(error)
        if stack := _stack(error):
            yield stack
        if error.__cause__ is not None:
            coming.append(("caused by ", error.__cause__))
        elif error.__context__ is not None and not error.__suppress_context__:
            coming.append(("raised while handling ", error.__context__))
        if isinstance(error, BaseExceptionGroup):
            members = enumerate(error.exceptions, 1)
            numbered = [(f"{number} of {len(error.exceptions)}: ", member) for number, member in members]
            coming += reversed(numbered)


def _head(error: BaseException) -> str:
    """Format it as Python prints it, notes included; a group with the first lines of its members."""
    head = "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, BaseExceptionGroup):
        return head
    found = leaves(error)
    named = [_cut(_head(leaf).partition("\n")[0], LONGEST_NAME) for leaf in found[:NAMED]]
    if len(found) > NAMED:
        named.append(f"{len(found) - NAMED:,} more")
    first, _, notes = head.partition("\n")
    return f"{first}: {' | '.join(named)}" + (f"\n{notes}" if notes else "")


def _stack(error: BaseException) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(OURS)
    ]
    if len(frames) <= FIRST_FRAMES + LAST_FRAMES:
        return "".join(traceback.format_list(frames)).rstrip()
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    return (
        "".join(traceback.format_list(frames[:FIRST_FRAMES]))
        + f"  … {left_out:,} frames …\n"
        + "".join(traceback.format_list(frames[-LAST_FRAMES:])).rstrip()
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"
