"""Sends one POST to a checked address: no redirects, no proxy, no second look-up of the name."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from leasehold.domain.checks.addresses import is_public

SECONDS = 15.0
"""Limit for the whole request: a server that answers byte by byte must not hold a worker."""
MOST_READ = 65_536


class Refusal(Exception):
    """The address must not be posted to."""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool, seconds: float = SECONDS
) -> int:
    """Return the status. Raises Refusal, or passes on OSError and http.client.HTTPException."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    until = time.monotonic() + seconds
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    connection.sock = _connected(host, port, allow_private, until)
    connection.sock.settimeout(seconds)
    watch = threading.Timer(max(0.0, until - time.monotonic()), _cut_off, [connection])
    watch.daemon = True
    watch.start()
    try:
        if parts.scheme == "https":
            # The name is for the certificate and the Host header; the socket goes to the checked address.
            secured = ssl.create_default_context().wrap_socket(
                connection.sock, server_hostname=host, do_handshake_on_connect=False
            )
            connection.sock = secured
            secured.do_handshake()
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        connection.request("POST", target, body, {"host": parts.netloc, **headers})
        answer = connection.getresponse()
        answer.read(MOST_READ)
        return answer.status
    finally:
        watch.cancel()
        connection.close()


def _connected(host: str, port: int, allow_private: bool, until: float) -> socket.socket:
    """Connect to one of the addresses that the name resolves to. If any is not public, connect to none: its owner
    controls the name, and it may resolve to anything next time. All addresses share the time limit."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    private = [address for address in addresses if not is_public(address)]
    if private and not allow_private:
        raise Refusal(
            f"{host} is {private[0]}, which is not an address of the Internet; allow_private permits it"
        )
    error: OSError | None = None
    for number, address in enumerate(addresses):
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((address, port), timeout=left / (len(addresses) - number))
        except OSError as problem:
            error = problem
    raise error or OSError(f"{host} has no address")


def _cut_off(connection: http.client.HTTPConnection) -> None:
    sock: socket.socket | None = connection.sock  # None: the request ended at the same moment
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
