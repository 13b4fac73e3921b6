"""Passes on what an execution writes to its job's log.

Each piece of the log is stored together with how far the output was read. So a worker that adopts the execution
continues from there: the log has what was written while no worker watched, and nothing twice.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any, Protocol, get_args

from leasehold.runners.contract import Runner, Stream

CHUNK = 64 * 1024
MOST_BYTES_A_POLL = 1024 * 1024
"""Most bytes of each stream that one poll passes on; a log keeps only the end of them anyway."""


class Logged(Protocol):
    execution: str

    @property
    def runner(self) -> Runner[Any]: ...

    def log_line(self, line: str, read_to: str | None = None) -> None: ...


class OutputReader:
    def __init__(self, run: Logged) -> None:
        self._run = run
        self._streams = {name: _Tail(run, name, self._log) for name in get_args(Stream)}

    def go_on_from(self, mark: str | None) -> None:
        """Continue where the previous worker stopped. None: it has passed on nothing."""
        for name, offset in json.loads(mark or "{}").items():
            self._streams[name].offset = offset

    def read(self) -> None:
        for stream in self._streams.values():
            stream.read()

    def finish(self) -> None:
        """Pass on the rest, and lines that were never ended."""
        for stream in self._streams.values():
            while stream.read():
                pass
            stream.end()

    def _log(self, text: str) -> None:
        mark = {name: stream.passed_on for name, stream in self._streams.items()}
        self._run.log_line(text, json.dumps(mark))


class _Tail:
    def __init__(self, run: Logged, name: Stream, log: Callable[[str], None]) -> None:
        self._run = run
        self._name = name
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = b""
        """The beginning of a line that has no end yet."""
        self.offset = 0

    @property
    def passed_on(self) -> int:
        return self.offset - len(self._line)

    def read(self) -> bool:
        """Return whether there may be more by now."""
        read = 0
        while read < MOST_BYTES_A_POLL:
            data, self.offset = self._run.runner.read_output(
                self._run.execution, self._name, self.offset, CHUNK
            )
            if not data:
                return False
            read += len(data)
            whole, end, self._line = (self._line + data).rpartition(b"\n")
            lines = whole.decode(errors="replace").split("\n") if end else []
            if len(self._line) > CHUNK:
                lines.append(self._decoder.decode(self._line))
                self._line, _ = self._decoder.getstate()  # the first bytes of a character
                self._decoder.reset()
            if lines:
                # As one note: a command that writes fast would keep the worker busy with its lines.
                self._log("\n".join(line.rstrip("\r") for line in lines))
        return True

    def end(self) -> None:
        if self._line:
            text, self._line = self._line.decode(errors="replace"), b""
            self._log(text)
