"""What an execution writes, passed on to its job's log as it comes."""

from __future__ import annotations

import codecs
from typing import Any, Protocol, get_args

from leasehold.runners.contract import Collected, Runner, Stream

CHUNK = 64 * 1024
MOST_AT_ONCE = 1024 * 1024
"""Bytes that one look passes on of each stream; a log keeps only the end of them anyway."""


class Logged(Protocol):
    execution: str

    @property
    def runner(self) -> Runner[Any]: ...

    def log_line(self, line: str) -> None: ...


class OutputReader:
    def __init__(self, run: Logged) -> None:
        self._run = run
        self._skips = False
        self._streams = [_Tail(run, name) for name in get_args(Stream)]

    def skip_what_was_read(self) -> None:
        """An adopter goes on with what is written from now on: what was before is in the log, but for the lines of the
        time when nobody watched."""
        self._skips = True

    def read(self) -> None:
        for stream in self._streams:
            if self._skips:
                stream.skip()
            stream.read()
        self._skips = False

    def finish(self, collected: Collected) -> None:
        """The rest of it, and lines that were never ended."""
        for stream in self._streams:
            while not self._skips and stream.read():
                pass
            stream.end()
        if self._skips:
            # It ended while nobody watched: its last words are all that there is.
            for output in (collected.stdout, collected.stderr):
                if output.tail:
                    self._run.log_line("\n".join(output.tail.splitlines()))


class _Tail:
    def __init__(self, run: Logged, name: Stream) -> None:
        self._run = run
        self._name = name
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def skip(self) -> None:
        while True:
            data, self._offset = self._get()
            if not data:
                return

    def read(self) -> bool:
        """Whether there may be more by now."""
        read = 0
        while read < MOST_AT_ONCE:
            data, self._offset = self._get()
            if not data:
                return False
            read += len(data)
            *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
            if len(self._line) > CHUNK:
                lines, self._line = [*lines, self._line], ""
            if lines:
                # As one: a command that writes fast would keep the worker busy with its lines.
                self._run.log_line("\n".join(line.rstrip("\r") for line in lines))
        return True

    def end(self) -> None:
        if self._line:
            self._run.log_line(self._line)
            self._line = ""

    def _get(self) -> tuple[bytes, int]:
        return self._run.runner.read_output(self._run.execution, self._name, self._offset, CHUNK)
