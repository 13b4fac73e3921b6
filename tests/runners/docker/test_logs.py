"""Whoever follows a log gets every byte once, whatever was written in between and however little is read at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.runners.contract import Stream
from leasehold.runners.docker import engine
from leasehold.runners.docker.engine import LOG_SETTLED_AFTER, Logs

STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
START = 1_800_000_000 * 10**9


class WrittenLog:
    """Answers as the engine does: the last so many messages, or those since a moment."""

    def __init__(self) -> None:
        self.messages: list[tuple[Stream, int, bytes]] = []
        self.sent = 0

    def write(self, stream: Stream, at: int, text: bytes) -> None:
        self.messages.append((stream, at, text))

    def frames(self, path: str, query: Mapping[str, object]) -> Iterator[tuple[int, bytes]]:
        seconds, _, rest = str(query.get("since", "0.0")).partition(".")
        since = int(seconds) * 10**9 + int(rest)
        for stream, at, text in self.messages[-int(str(query.get("tail", 0))) :]:
            if at >= since:
                stamp = datetime.fromtimestamp(at // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
                self.sent += 1
                yield STREAMS.index(stream) + 1, f"{stamp}.{at % 10**9:09}Z ".encode() + text


@pytest.fixture(autouse=True)
def no_old_glances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "GLANCE_LASTS", 0.0)


def follow(
    log: WrittenLog, run: Path, stream: Stream, offset: int = 0, limit: int = 1000
) -> tuple[bytes, int]:
    """Each read as by another worker."""
    seen = b""
    while True:
        data, offset = Logs(log).read("c", run, stream, offset, limit)
        if not data:
            return seen, offset
        seen += data


writes = st.lists(
    st.tuples(
        st.sampled_from(STREAMS),
        # Often of the same moment; of two streams one may be written late; and pauses longer than that.
        st.sampled_from([0, 0, 1, 3, LOG_SETTLED_AFTER // 3, 2 * LOG_SETTLED_AFTER]),
        st.integers(1, 6),
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(rounds=st.lists(st.tuples(writes, st.integers(1, 9)), max_size=6))
def test_all_that_was_written_is_read_once(rounds):
    log = WrittenLog()
    clock = dict.fromkeys(STREAMS, START)
    whole = dict.fromkeys(STREAMS, b"")
    seen = dict.fromkeys(STREAMS, b"")
    with tempfile.TemporaryDirectory() as folder:
        for written, limit in rounds:
            for stream, pause, length in written:
                clock[stream] = max(clock[stream] + pause, max(clock.values()) - LOG_SETTLED_AFTER // 2)
                text = bytes(64 + len(whole[stream]) % 50 for _ in range(length))
                log.write(stream, clock[stream], text)
                whole[stream] += text
            for stream in STREAMS:
                # Not always to the end: a reader may stop in the middle of a message.
                data, _ = Logs(log).read("c", Path(folder), stream, len(seen[stream]), limit)
                seen[stream] += data
                if limit > 4:
                    seen[stream] += follow(log, Path(folder), stream, len(seen[stream]), limit)[0]
        for stream in STREAMS:
            data, offset = follow(log, Path(folder), stream, len(seen[stream]))
            assert seen[stream] + data == whole[stream]
            assert offset == len(whole[stream])
            if whole[stream]:  # and from the beginning, or any place, again
                middle = len(whole[stream]) // 2
                assert (
                    Logs(log).read("c", Path(folder), stream, middle, 5)[0]
                    == whole[stream][middle : middle + 5]
                )


def test_a_message_that_is_written_after_a_later_one_of_the_other_stream_is_read(tmp_path):
    log = WrittenLog()
    for number in range(100):
        log.write("stdout", START + number, b"x")
    assert follow(log, tmp_path, "stderr") == (b"", 0)
    log.write("stderr", START + 50, b"late\n")
    assert follow(log, tmp_path, "stderr") == (b"late\n", 5)


def test_a_late_message_of_the_other_stream_does_not_hide_one_of_the_same_moment(tmp_path):
    log = WrittenLog()
    for number in range(3):
        log.write("stdout", START, b"%d\n" % number)
    log.write("stderr", START - 1, b"late\n")
    for number in range(3, 2 + engine.GLANCE):
        log.write("stdout", START, b"%d\n" % number)
    assert Logs(log).read("c", tmp_path, "stdout", 0, 2) == (b"0\n", 2)
    assert Logs(log).read("c", tmp_path, "stdout", 2, 2) == (b"1\n", 4)


def test_a_silent_stream_is_not_searched_for_in_the_whole_log_each_time(tmp_path):
    log = WrittenLog()
    for number in range(5000):
        log.write("stdout", START + number * LOG_SETTLED_AFTER, b"x\n")
    assert follow(log, tmp_path, "stderr") == (b"", 0)
    log.sent = 0
    assert follow(log, tmp_path, "stderr") == (b"", 0)
    assert log.sent <= engine.GLANCE


def test_offsets_go_on_though_the_beginning_was_dropped(tmp_path):
    log = WrittenLog()
    for number in range(100):
        log.write("stdout", START + number, b"%02d\n" % number)
    assert follow(log, tmp_path, "stdout")[1] == 300
    log.write("stdout", START + 200, b"new\n")
    del log.messages[:60]
    assert Logs(log).read("c", tmp_path, "stdout", 300, 9) == (b"new\n", 304)
    assert Logs(log).read("c", tmp_path, "stdout", 0, 3) == (b"60\n", 183)
    assert Logs(log).output("c", tmp_path, "stdout", 10**6).size == 304
