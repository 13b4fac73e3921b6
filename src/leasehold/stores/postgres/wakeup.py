"""Wake-ups on PostgreSQL: LISTEN on a connection of its own. Without it, everything still happens within the poll."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

import psycopg

from leasehold.stores.database.wakeups import ANYTHING, Hint, listen_here

logger = logging.getLogger("leasehold.wakeups")

PAYLOADS = {Hint.WORK: "", Hint.STOP: "stop", Hint.HOOKS: "hooks"}
_HINTS = {payload: hint for hint, payload in PAYLOADS.items()}
PROBE_SECONDS = 10.0
"""A half-open connection delivers nothing and says nothing: the listener asks now and then."""


class PostgresWakeups:
    def __init__(self, url: str, received: Mapping[str, str]) -> None:
        """`received`: channels, and for each the label of the hints that this process passes on by itself."""
        self._url = url
        self._channels = list(received)
        self._listener = listen_here(*received.values())
        self._closed = threading.Event()
        self._listening = False
        self._thread = threading.Thread(target=self._listen_for_ever, name="leasehold-listen", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> Hint:
        return self._listener.wait(seconds)

    def call(self, on_hint: Callable[[Hint], None]) -> bool:
        self._listener.call(on_hint)
        return True

    def stir(self) -> None:
        """A notification comes at once, busy or not."""

    @property
    def listens(self) -> bool:
        return self._listening

    def close(self) -> None:
        self._closed.set()
        self._listener.close()

    def _listen_for_ever(self) -> None:
        pause = 0.1
        while not self._closed.is_set():
            try:
                self._listen()
                pause = 0.1
            except (
                Exception
            ) as error:  # also of a called function: without its thread `listens` would be wrong
                self._listening = False
                logger.info("not listening for wake-ups (%s); polling instead", str(error).strip())
                self._closed.wait(pause)
                pause = min(pause * 2, 5.0)

    def _listen(self) -> None:
        options = {"autocommit": True, "connect_timeout": 10, "keepalives_idle": 30}
        with psycopg.connect(self._url, application_name="leasehold listener", **options) as connection:  # type: ignore[arg-type] # options by name
            for channel in self._channels:
                connection.execute(f'LISTEN "{channel}"')
            self._listening = True
            # One look finds what was missed before the LISTEN.
            self._listener.receive(ANYTHING)
            received_at = time.monotonic()
            while not self._closed.is_set():
                for received in connection.notifies(timeout=1.0, stop_after=1):
                    received_at = time.monotonic()
                    self._listener.receive(_HINTS.get(received.payload, Hint.WORK))
                if time.monotonic() - received_at > PROBE_SECONDS:
                    self._probe(connection)
                    received_at = time.monotonic()

    def _probe(self, connection: psycopg.Connection[tuple[str]]) -> None:
        channels = {row[0] for row in connection.execute("SELECT pg_listening_channels()").fetchall()}
        if not channels.issuperset(self._channels):
            raise psycopg.OperationalError(
                "the connection no longer listens; a transaction pooler may be in between"
            )
