"""A Docker engine of the tests' own, from Debian's package: its own socket, its own folder, one image, no network."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Self

from leasehold.runners.docker.engine import Connection, Engine
from leasehold.runners.docker.runner import EXECUTION
from tests.debian import find, why_not_installed

IMAGE = "leasehold-busybox:1"
PACKAGES = {"dockerd": "docker.io", "busybox": "busybox-static"}


def why_no_engine() -> str | None:
    """Install it if that is possible here. Why there is no engine, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a Docker engine of the tests' own needs Linux and root"
    return why_not_installed(PACKAGES)


class PrivateEngine:
    """`hidden` is a folder that it does not see as the tests do: as an engine in a container, or on another machine."""

    def __init__(self, hidden: Path | None = None) -> None:
        self.hidden = hidden
        self.folder = Path(
            tempfile.mkdtemp(prefix="leasehold-docker-", dir="/tmp")
        )  # a socket's path is short
        self.host = f"unix://{self.folder}/socket"
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        program = find("dockerd")
        assert program is not None
        command = [
            program, "--host", self.host, "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec",
            "--pidfile", f"{self.folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false",
            "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false", "--log-level=warn",
        ]  # fmt: skip
        if self.hidden is not None:
            script = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", script, str(self.hidden), *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            reported = self.log.read_text(errors="replace")[-3000:]
            assert self._process.poll() is None, f"dockerd ended: {reported}"
            assert time.monotonic() < deadline, f"dockerd does not answer: {reported}"
            time.sleep(0.05)
        return self

    def import_image(self) -> None:
        """All of it is one program."""
        busybox, packed = find("busybox"), io.BytesIO()
        assert busybox is not None
        listed = subprocess.run(
            [busybox, "--list"], capture_output=True, text=True, check=True
        ).stdout.split()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(os.path.realpath(busybox), "bin/busybox")
            for name in listed:
                if name != "busybox":
                    link = tarfile.TarInfo(f"bin/{name}")
                    link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                    tar.addfile(link)
        name, _, tag = IMAGE.partition(":")
        connection = Connection(self.host.removeprefix("unix://"))
        with contextlib.closing(connection):
            query = f"fromSrc=-&repo={name}&tag={tag}"
            connection.request(
                "POST", f"/images/create?{query}", packed.getvalue(), {"Content-Type": "application/x-tar"}
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.stop()
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in sorted(
            (place for place in mounted if place.startswith(f"{self.folder}/")), reverse=True
        ):
            subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            return Engine(self.host).call("GET", "/info").status == 200
        except OSError:
            return False


def recorded_starts(engine: Engine, label: str) -> Counter[str]:
    """How often the engine itself has recorded a start, for each run with this label: the oracle."""
    filters = json.dumps({"event": ["start"], "label": [label]})
    query = {"since": 1, "until": f"{time.time():.6f}", "filters": filters}
    reported = engine.call("GET", "/events", query).body
    return Counter(json.loads(line)["Actor"]["Attributes"][EXECUTION] for line in reported.splitlines())


def containers(engine: Engine, label: str) -> dict[str, str]:
    """The ids of all that are there, running or not, by the names of their runs."""
    query = {"all": 1, "filters": json.dumps({"label": [label]})}
    return {
        found["Labels"][EXECUTION]: found["Id"]
        for found in engine.call("GET", "/containers/json", query).json()
    }
