"""Reads what containers have written, from the engine's log.

The engine has no offsets, and does not say how much it has dropped: it returns the last messages, or those since a
given time. So a reader leaves an anchor in the execution's folder, "everything up to this message ends at that offset",
and the next reader, perhaps another worker, counts from there.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from leasehold.domain.frozen import frozen
from leasehold.runners.contract import Output, Stream
from leasehold.runners.docker.engine import Engine

TAIL = 64 * 1024
"""Bytes of stdout and of stderr that `collect` returns."""
GLANCE = 32
"""How many messages to read first: usually they include all new ones. The engine finds the last messages without
reading the whole log; for those since a given time it reads all of it."""
GLANCE_LASTS = 0.2
"""Seconds for which the messages read for one stream serve the other too. It halves the cost of following."""
SETTLED = 1_000_000_000
"""Nanoseconds after which no older message arrives. The engine stamps a message before it writes it, and may write one
of the other stream in between."""
OVERHEAD = 70
"""Bytes that the engine adds to a message."""

_STREAMS: Mapping[int, Stream] = {1: "stdout", 2: "stderr"}


@frozen
class Message:
    stream: Stream
    at: int
    """Nanoseconds since 1970, by the engine's clock."""
    text: bytes


@frozen
class Anchor:
    """The offset at which the stream ends, up to this time and including the first `nth` messages of this time."""

    end: int
    at: int
    nth: int

    def newer(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages after the anchor. If the anchor's message was dropped, all kept messages are newer."""
        to_skip = self.nth
        for message in messages:
            if message.at == self.at and to_skip:
                to_skip -= 1
            elif message.at >= self.at:
                yield message


BEGIN = Anchor(0, 0, 0)


class Logs:
    """Reads the logs of one engine's containers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._glance: tuple[str, Stream, float, list[Message]] | None = None

    def read(self, container: str, run: Path, stream: Stream, offset: int, limit: int) -> tuple[bytes, int]:
        """Read part of a stream. `container` is a name or id, and `run` the folder that holds the anchors."""
        anchor = _read_anchor(run, stream)
        messages = self._from(container, stream, anchor, offset)
        if offset < anchor.end:
            older = [message for message in messages if message.stream == stream]
            newer = list(anchor.newer(older))
            at = anchor.end - _length(older[: len(older) - len(newer)])
            data, offset, _ = _cut(older, at, offset, limit)
            return data, offset
        seen = list(_until_full(messages, stream, anchor, offset + limit))
        newer = list(anchor.newer(message for message in seen if message.stream == stream))
        data, after, whole = _cut(newer, anchor.end, offset, limit)
        moved = _move(anchor, whole)
        if len(whole) == len(newer) and seen:
            moved = _move_with_the_other(moved, max(message.at for message in seen) - SETTLED)
        if moved != anchor:
            _leave_anchor(run, stream, moved)
        return data, after

    def output(self, container: str, run: Path, stream: Stream, limit: int) -> Output:
        """Return the output at the end. `limit` is what the engine keeps of the log before it drops its oldest file."""
        everything = list(self._messages(container, {}))
        own = [message for message in everything if message.stream == stream]
        anchor = _read_anchor(run, stream)
        size = anchor.end + _length(anchor.newer(own))
        tail = b"".join(message.text for message in own)[-TAIL:]
        may_be_cut = _length(everything) + OVERHEAD * len(everything) >= limit
        return Output(tail.decode(errors="replace"), size, is_cut=len(tail) < size or may_be_cut)

    def _from(self, container: str, stream: Stream, anchor: Anchor, offset: int) -> Iterable[Message]:
        """Return all messages from the anchor on; if the offset is before the anchor, all messages."""
        if offset < anchor.end:
            return self._messages(container, {})
        glance = self._take_glance(container, stream)
        # With fewer messages, this is the whole log. An older message of the stream, or a much older one of the other,
        # shows that nothing after the anchor is missing.
        is_enough = len(glance) < GLANCE or glance[0].at < anchor.at - SETTLED
        if is_enough or any(message.at < anchor.at for message in glance if message.stream == stream):
            return glance
        since = f"{anchor.at // 10**9}.{anchor.at % 10**9:09}"
        return self._messages(container, {"since": since} if anchor.at else {})

    def _take_glance(self, container: str, stream: Stream) -> list[Message]:
        last, self._glance = self._glance, None
        now = time.monotonic()
        if (
            last is not None
            and (last[0], now - last[2] < GLANCE_LASTS) == (container, True)
            and last[1] != stream
        ):
            return last[3]
        glance = list(self._messages(container, {"tail": GLANCE}))
        self._glance = (container, stream, now, glance)
        return glance

    def _messages(self, container: str, query: Mapping[str, object]) -> Iterator[Message]:
        requested = {"stdout": 1, "stderr": 1, "timestamps": 1, **query}
        with contextlib.closing(self._engine.frames(f"/containers/{container}/logs", requested)) as frames:
            for number, content in frames:
                at, _, text = content.partition(b" ")
                yield Message(_STREAMS[number], _nanoseconds(at.decode()), text)


def _until_full(messages: Iterable[Message], stream: Stream, anchor: Anchor, end: int) -> Iterator[Message]:
    """Yield only as many messages as it takes to reach this offset: the rest is not fetched."""
    at = anchor.end
    for message in messages:
        yield message
        if message.stream == stream and message.at > anchor.at:
            at += len(message.text)
            if at >= end:
                return


def _cut(messages: Iterable[Message], at: int, offset: int, limit: int) -> tuple[bytes, int, list[Message]]:
    """Return the bytes from this offset on, of messages of which the first begins at `at`; the offset after them; and
    the messages that were read to their end."""
    data, whole = b"", []
    offset = max(offset, at)
    for message in messages:
        end = at + len(message.text)
        if end > offset + len(data):
            data += message.text[max(offset - at, 0) :][: limit - len(data)]
        if end > offset + len(data):
            break
        whole.append(message)
        at = end
    return data, offset + len(data), whole


def _move(anchor: Anchor, whole: list[Message]) -> Anchor:
    """Return the anchor after these messages."""
    if not whole:
        return anchor
    at = whole[-1].at
    nth = sum(message.at == at for message in whole) + (anchor.nth if at == anchor.at else 0)
    return Anchor(anchor.end + _length(whole), at, nth)


def _move_with_the_other(anchor: Anchor, at: int) -> Anchor:
    """Move a silent stream's anchor with the other stream: otherwise every read would search the whole log."""
    return Anchor(anchor.end, at, 0) if at > anchor.at else anchor


def _length(messages: Iterable[Message]) -> int:
    return sum(len(message.text) for message in messages)


def _read_anchor(run: Path, stream: Stream) -> Anchor:
    try:
        return Anchor(*json.loads((run / f"anchor.{stream}").read_text()))
    except FileNotFoundError:
        return BEGIN


def _leave_anchor(run: Path, stream: Stream, anchor: Anchor) -> None:
    with contextlib.suppress(FileNotFoundError):  # the execution was removed
        unfinished = run / f".anchor.{secrets.token_hex(6)}"
        unfinished.write_text(json.dumps([anchor.end, anchor.at, anchor.nth]))
        unfinished.rename(run / f"anchor.{stream}")


def _nanoseconds(at: str) -> int:
    """Parse a time in UTC with nine digits after the second."""
    return int(datetime.fromisoformat(f"{at[:19]}+00:00").timestamp()) * 10**9 + int(at[20:-1] or 0)
