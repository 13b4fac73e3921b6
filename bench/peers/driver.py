"""python driver.py <adapter.py> <command> [args]: the generic side of a Python adapter.

An adapter is one file, in adapters/ or anywhere else, with these module-level names (sync or async functions):
  BACKEND = "postgres" | "sqlite"
  SETTINGS = "one line: what was tuned"
  UNFINISHED = SQL counting jobs not yet durably finished      (postgres/sqlite only, optional)
  HISTORY = SQL adding %(n)s finished (or far-future) rows     (postgres only, optional)
  JOBS = 20000            # jobs in a drain; lower it for slow systems
  SLEEPERS = True         # can hold 500 sleeping jobs in one process
  LOOP = "uvloop"         # event loop to use, optional
  setup()                 # create the schema in an empty database
  connect()               # open the producer
  enqueue(task, arg)      # one job, durable on return; task is "noop" or "sleep", arg a float
  enqueue_many(task, args)  # the batch API, or None
  work(concurrency)       # run a worker until killed; the handlers call rec.hit / time.sleep
  CONCURRENCY = 100       # best for no-ops
"""
import asyncio
import importlib.util
import inspect
import json
import sys
import time

BATCH = 1000  # jobs per batch-API call


async def call(fn, *args):
    result = fn(*args)
    return await result if inspect.isawaitable(result) else result


async def produce(mod, command, args):
    n = int(args[0])
    await call(mod.connect)
    if command == "enqueue":
        await call(mod.enqueue, "noop", 0.0)  # warm the connection and the statement cache
        start = time.perf_counter()
        if inspect.iscoroutinefunction(mod.enqueue):
            for _ in range(n):
                await mod.enqueue("noop", 0.0)
        else:
            for _ in range(n):
                mod.enqueue("noop", 0.0)
        return time.perf_counter() - start
    if command in ("bulk", "sleepers"):
        task, arg = ("noop", 0.0) if command == "bulk" else ("sleep", float(args[1]))
        many = getattr(mod, "enqueue_many", None)
        start = time.perf_counter()
        if many is None:
            for _ in range(n):
                await call(mod.enqueue, task, arg)
        else:
            for done in range(0, n, BATCH):
                await call(many, task, [arg] * min(BATCH, n - done))
        return time.perf_counter() - start
    if command == "probe":  # one job every `interval` seconds, carrying its own send time
        interval, start = float(args[1]), time.time()
        for i in range(n):
            delay = start + i * interval - time.time()
            if delay > 0:
                await asyncio.sleep(delay)
            await call(mod.enqueue, "noop", time.time())
        return time.time() - start
    raise SystemExit(f"unknown command {command}")


def main():
    path, command, *args = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("adapter", path)
    mod = sys.modules["adapter"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mod)
    if command == "meta":
        keys = ("BACKEND", "SETTINGS", "UNFINISHED", "HISTORY", "JOBS", "SLEEPERS", "CONCURRENCY", "VERSION")
        meta = {k: getattr(mod, k) for k in keys if hasattr(mod, k)}
        meta["BULK"] = getattr(mod, "enqueue_many", None) is not None
        print(json.dumps(meta))
        return
    factory = None
    if getattr(mod, "LOOP", None) == "uvloop":
        import uvloop
        factory = uvloop.new_event_loop
    if command in ("setup", "work"):
        fn = getattr(mod, command)
        coro = fn(*map(int, args))  # a plain function has run (or runs until killed) here, outside any loop
        if not inspect.iscoroutine(coro):
            return
    else:
        coro = produce(mod, command, args)
    with asyncio.Runner(loop_factory=factory) as runner:
        seconds = runner.run(coro)
    if command not in ("setup", "work"):
        print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
