"""Builds the package as a release would, and uses it as a stranger would.

    python -m tools.release_check        build sdist and wheel into dist/, look into them, install and use the wheel
    python -m tools.release_check --tag  also: may this commit be tagged (clean tree, dated changelog, new tag)

The wheel is installed into an empty virtual environment with the core dependencies alone, away from the sources. There
it runs a job on SQLite through the command line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"
DEADLINE = 300

APP = """
from leasehold import Leasehold

app = Leasehold()


@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


class NotReady(Exception):
    """What has to be mended before a release."""


def main(arguments: list[str]) -> int:
    try:
        version = project_version()
        if "--tag" in arguments:
            check_commit(version)
        wheel, sdist = build(version)
        check_wheel(names_in_wheel(wheel), tracked("src/leasehold"))
        check_sdist(names_in_sdist(sdist), tracked("src/leasehold"))
        use(wheel, version)
    except NotReady as problem:
        print(f"not ready for a release: {problem}", file=sys.stderr)
        return 1
    print(f"leasehold {version} is ready: {wheel.name}, {sdist.name} in dist/")
    return 0


def project_version() -> str:
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def check_commit(version: str) -> None:
    """Is what stands here what a tag would name?"""
    if reported(["git", "status", "--porcelain"]):
        raise NotReady("the working tree has changes that are not committed")
    if reported(["git", "tag", "--list", f"v{version}"]):
        raise NotReady(f"the tag v{version} exists already: raise the version in pyproject.toml")
    if not is_dated((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version):
        raise NotReady(f"CHANGELOG.md has no heading '## [{version}] - YYYY-MM-DD'")


def is_dated(changelog: str, version: str) -> bool:
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$"
    return re.search(heading, changelog, re.MULTILINE) is not None


def build(version: str) -> tuple[Path, Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    # The build backend is installed into an environment of its own, in the version that we have tried.
    environment = {**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)}
    call([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], environment=environment)
    wheel, sdist = DIST / f"leasehold-{version}-py3-none-any.whl", DIST / f"leasehold-{version}.tar.gz"
    if not (wheel.is_file() and sdist.is_file()):
        raise NotReady(f"the build made {sorted(path.name for path in DIST.iterdir())}")
    return wheel, sdist


def names_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def names_in_sdist(sdist: Path) -> set[str]:
    """Below the one folder in which all of it stands."""
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def tracked(folder: str) -> set[str]:
    """What git keeps there: code, SQL, templates, styles, scripts, py.typed."""
    return set(reported(["git", "ls-files", folder]).splitlines())


def check_wheel(names: set[str], sources: set[str]) -> None:
    """The whole package, its licence, and nothing else."""
    missing = {name.removeprefix("src/") for name in sources} - names
    foreign = {name for name in names if not re.match(r"leasehold/|leasehold-[^/]+\.dist-info/", name)}
    licence = any(name.endswith("/licenses/LICENSE") for name in names)
    if missing or foreign or not licence:
        raise NotReady(
            f"the wheel: missing {sorted(missing)}, too much {sorted(foreign)}, licence: {licence}"
        )


def check_sdist(names: set[str], sources: set[str]) -> None:
    """Enough to build the package and to test it."""
    also = {
        "pyproject.toml",
        "constraints.txt",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
        "tests/conftest.py",
    }
    if missing := (sources | also) - names:
        raise NotReady(f"the sdist: missing {sorted(missing)}")


def use(wheel: Path, version: str) -> None:
    """Install the wheel into an empty environment, and run a job with it."""
    with tempfile.TemporaryDirectory(prefix="leasehold-release-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        bin = folder / "venv" / "bin"
        install = ["install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS), str(wheel)]
        call([str(bin / "python"), "-m", "pip", *install])
        (folder / "shop.py").write_text(APP, encoding="utf-8")
        # Neither our checkout nor the settings of whoever calls this may lend a hand.
        clean = {
            key: value for key, value in os.environ.items() if not key.startswith(("LEASEHOLD", "PYTHON"))
        }

        def leasehold(*arguments: str) -> str:
            return call([str(bin / "leasehold"), *arguments], environment=clean, folder=folder)

        if "worker" not in leasehold("--help"):
            raise NotReady("leasehold --help does not list the worker")
        where = "import leasehold; print(leasehold.__file__)"
        if str(folder) not in call([str(bin / "python"), "-c", where], environment=clean, folder=folder):
            raise NotReady("the installed package is not the one that was imported")
        job = json.loads(leasehold("jobs", "enqueue", "shop:app", "add", '{"a": 2, "b": 3}', "--json"))
        leasehold("worker", "shop:app", "--burst")
        if (result := leasehold("jobs", "result", job["id"]).strip()) != "5":
            raise NotReady(f"the job returned {result}, not 5")
        if (found := installed_version(bin, clean, folder)) != version:
            raise NotReady(f"the wheel installs version {found}, not {version}")


def installed_version(bin: Path, environment: dict[str, str], folder: Path) -> str:
    code = "from importlib.metadata import version; print(version('leasehold'))"
    return call([str(bin / "python"), "-c", code], environment=environment, folder=folder).strip()


def reported(command: Sequence[str]) -> str:
    return call(command).strip()


def call(command: Sequence[str], *, environment: dict[str, str] | None = None, folder: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    if done.returncode != 0:
        raise NotReady(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
