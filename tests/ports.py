"""Ports for servers that cannot choose one themselves and report it (`--port 0`)."""

from __future__ import annotations

import random
import socket
import sys

_choose = random.SystemRandom()  # the seed of a test must not make two processes try the same ports


def claim_port(first: int = 10_000, last: int = 32_767) -> int:
    """A free port of the loopback address. No other call returns it until this process ends, in any suite on this
    machine (on Linux).

    A probe shows only that a port is free now, and the server binds it later. So each port has an abstract Unix
    socket, which only one process can bind. Connections take their ports from 32768 on, unless the system is told
    otherwise.
    """
    while True:
        port = _choose.randint(first, last)
        claim = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":
                claim.bind(f"\0leasehold-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            claim.detach()  # it stays open until the process ends, however that ends
            return port
