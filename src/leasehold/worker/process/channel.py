"""Frames between a worker and a child process: a length, then that many bytes."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from contextlib import AbstractContextManager, nullcontext

_LENGTH = struct.Struct("!Q")
CHECK_EVERY = 1.0
"""Seconds. A thread that waits in the kernel for a socket does not notice that its own process has closed it."""


class Channel:
    """One end of the channel. Several threads may send; one receives."""

    def __init__(self, end: socket.socket, shield: AbstractContextManager[object] | None = None) -> None:
        self._end = end
        self._sending = threading.Lock()
        self._shield = shield or nullcontext()
        """Entered around each send: half a frame would spoil all that follow."""
        self._process = os.getpid()
        self._file = os.fstat(end.fileno()).st_ino
        self._readable = select.poll()
        self._readable.register(end, select.POLLIN)

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, frame: bytes) -> None:
        """Block until the frame is sent. Raises OSError if the other end is gone."""
        if os.getpid() != self._process:
            raise RuntimeError("ctx belongs to the process that the worker has started, not to a fork of it")
        with self._shield, self._sending:
            self._check()
            self._end.sendall(_LENGTH.pack(len(frame)))
            self._end.sendall(frame)

    def receive(self) -> bytes | None:
        """Return None if one of the ends is closed, perhaps amid a frame."""
        head = self._exactly(_LENGTH.size)
        return None if head is None else self._exactly(_LENGTH.unpack(head)[0])

    def close(self) -> None:
        self._end.close()

    def _check(self) -> None:
        """A handler may have closed all its files, and opened others under their numbers."""
        if os.fstat(self._end.fileno()).st_ino != self._file:
            raise OSError("the channel was closed")

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                self._check()
                if not self._readable.poll(1000 * CHECK_EVERY):
                    continue
                piece = self._end.recv(min(count - len(data), 1 << 20))
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)
