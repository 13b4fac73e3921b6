"""pgbouncer in transaction mode, from Debian's package, in front of a server of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

from tests.debian import find, why_not_installed
from tests.faults.harness import wait_for
from tests.ports import claim_port
from tests.servers import PostgresServer


def ensure_pgbouncer() -> str | None:
    """Install it if that is possible here. Why it is not there, or None."""
    return why_not_installed({"pgbouncer": "pgbouncer"})


class PgBouncer:
    """It refuses to run as root, so there it runs as `nobody`."""

    def __init__(self, server: PostgresServer, database: str, pool_size: int = 8) -> None:
        program = find("pgbouncer")
        assert program is not None
        self.database = database
        self.folder = Path(tempfile.mkdtemp(prefix="leasehold-pgbouncer-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.port = claim_port()
        (self.folder / "users.txt").write_text('"postgres" ""\n')
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n{database} = host=127.0.0.1 port={server.port} user=postgres\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\n"
            "unix_socket_dir =\nauth_type = trust\n"
            f"auth_file = {self.folder}/users.txt\n"
            f"pool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = 200\n"
            "server_login_retry = 1\nlog_connections = 0\nlog_disconnections = 0\n"
            "admin_users = postgres\n"
        )
        command = [program, str(self.folder / "pgbouncer.ini")]
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self._answers, f"pgbouncer to answer ({self.log})", 20)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self.database}?pooler=transaction"

    def transactions(self) -> int:
        """How many it has passed on."""
        admin = f"postgresql://postgres@127.0.0.1:{self.port}/pgbouncer"
        # Its console speaks the simple protocol only, and knows no transactions.
        with psycopg.connect(admin, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            cursor = connection.execute("SHOW STATS")
            names = [column.name for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return next(int(row["total_xact_count"]) for row in rows if row["database"] == self.database)

    def close(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            psycopg.connect(self.url.partition("?")[0], connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
