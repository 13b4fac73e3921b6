"""Is there a Docker engine with our image? Asked once at the start, so that all processes use the same runner."""

from __future__ import annotations

import http.client
import os
import socket
from contextlib import closing
from urllib.parse import quote


class _Engine(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self.host)


def has_image(image: str) -> bool:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        with closing(_Engine(host.removeprefix("unix://"))) as engine:
            engine.request("GET", f"/images/{quote(image)}/json", headers={"Host": "docker"})
            return engine.getresponse().status == 200
    except OSError:
        return False
