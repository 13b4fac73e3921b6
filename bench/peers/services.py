"""A private Postgres (durable defaults) on loopback, for the length of one run."""
import glob
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

HOME = pathlib.Path(os.environ.get("BENCH_HOME") or pathlib.Path(tempfile.gettempdir()) / "bench")
PG_PORT = 54329
PG_BIN = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
SQLITE = HOME / "sqlite" / "bench.db"
REC = pathlib.Path("/dev/shm/bench-rec")


def pg_url(db):
    return f"postgresql://postgres@127.0.0.1:{PG_PORT}/{db}"


class Services:
    def __enter__(self):
        self.data = HOME / "pgdata"
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        shutil.chown(self.data, "postgres", "postgres")
        run = {"user": "postgres", "cwd": "/", "stdout": subprocess.DEVNULL, "check": True}
        subprocess.run([f"{PG_BIN}/initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
                        "--no-locale"], **run)
        # Stock settings apart from where it listens; fsync and synchronous_commit stay on.
        self.pg = subprocess.Popen(
            [f"{PG_BIN}/postgres", "-D", self.data, "-p", str(PG_PORT), "-k", self.data,
             "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"],
            user="postgres", cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        SQLITE.parent.mkdir(exist_ok=True)
        for _ in range(100):
            if subprocess.run([f"{PG_BIN}/pg_isready", "-h", "127.0.0.1", "-p", str(PG_PORT)],
                              stdout=subprocess.DEVNULL).returncode == 0:
                return self
            time.sleep(0.1)
        raise SystemExit("Postgres did not start")

    def __exit__(self, *_):
        self.pg.terminate()  # SIGTERM would wait for clients: all ours are gone by now
        self.pg.wait(30)


def psql(sql, db="postgres"):
    out = subprocess.run([f"{PG_BIN}/psql", "-qAtX", "-v", "ON_ERROR_STOP=1", pg_url(db)], input=sql, text=True,
                         capture_output=True)
    if out.returncode:
        raise RuntimeError(out.stderr.strip()[-400:])
    return out.stdout.strip()


class Asker:
    """One psql kept open, so that polling costs a round trip and not a process."""

    def __init__(self, db):
        self.p = subprocess.Popen([f"{PG_BIN}/psql", "-qAtX", pg_url(db)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, sql):
        self.p.stdin.write(sql.rstrip(";") + ";\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()

    def close(self):
        self.p.stdin.close()
        self.p.wait()
