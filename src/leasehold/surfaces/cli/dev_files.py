"""The files that `leasehold dev` watches, and their changes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

MOST_FILES = 1_000
MOST_ENTRIES = 10_000
"""Folder entries to look at. A folder may hold data, too: beyond this limit, only imported files are watched."""
WALK_EVERY = 2.0
SETTLED_FOR = 0.1
"""Seconds without another change before a restart: an editor, or git, may be writing several files."""
PATIENCE = 2.0

_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamp = tuple[int, int]


class WatchedFiles:
    """The .py files below a folder, and the files of modules that the app has imported from there. Found by polling."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: set[str] = set()
        self._below: set[str] = set()
        self._walked_at = 0.0
        self._stamps: dict[str, Stamp | None] = {}
        self.changed()

    def learn(self, files: Iterable[str]) -> None:
        """Watch these files too: the app has imported them."""
        for file in set(files) - self._loaded:
            self._loaded.add(file)
            self._stamps.setdefault(file, _stamp(file))

    def changed(self) -> list[str]:
        """The files that were written, added or removed since the last call."""
        if time.monotonic() - self._walked_at > WALK_EVERY or not self._walked_at:
            self._below = set(_python_files(self._folder))
            self._walked_at = time.monotonic()
        now = {file: _stamp(file) for file in self._below | self._loaded | self._stamps.keys()}
        found = [file for file, stamp in now.items() if stamp != self._stamps.get(file)]
        self._stamps = now
        return sorted(found)

    def settle(self) -> None:
        """Wait until the files stop changing, at most PATIENCE."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            time.sleep(SETTLED_FOR)
            if not self.changed():
                return


def loaded_below(folder: Path) -> list[str]:
    """The files of this process's modules below the folder, without installed packages."""
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    return sorted({file for file in files if isinstance(file, str) and _is_ours(file, folder)})


def _is_ours(file: str, folder: Path) -> bool:
    path = Path(file)
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return False
    return not any(map(_is_foreign, path.relative_to(folder).parts[:-1]))


def _is_foreign(folder: str) -> bool:
    return folder.startswith(".") or folder in _NOT_OURS


def _python_files(folder: Path) -> Iterator[str]:
    files = entries = 0
    for place, folders, names in os.walk(folder):
        entries += len(folders) + len(names)
        if "pyvenv.cfg" in names:  # a virtual environment
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _is_foreign(name))
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(place, name)
                files += 1
        if files >= MOST_FILES or entries >= MOST_ENTRIES:
            return


def _stamp(file: str) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
