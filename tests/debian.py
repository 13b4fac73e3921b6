"""Programs of Debian's packages that tests need: installed where that is possible, by one test process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/bin"))


def find(program: str) -> str | None:
    return shutil.which(program, path=PLACES)


def why_not_installed(packages: Mapping[str, str]) -> str | None:
    """The packages, by the program that is wanted of each: install what is missing. Why that is not possible, or
    None."""
    if not _missing(packages):
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"Debian's packages are not installed: {', '.join(_missing(packages))}"
    # `apt-get update` does not wait for another one, it fails. Suites beside each other may differ in TMPDIR.
    with Path("/tmp/leasehold-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _install(packages)


def _install(packages: Mapping[str, str]) -> str | None:
    wanted = _missing(packages)
    install = ["-o", "DPkg::Lock::Timeout=120", "install", "-y", "-qq", "--no-install-recommends", *wanted]
    for command in (["apt-get", "update", "-qq"], ["apt-get", *install]) if wanted else ():
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0 and _missing(packages):
            return f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}"
    return None


def _missing(packages: Mapping[str, str]) -> list[str]:
    return [package for program, package in packages.items() if find(program) is None]
