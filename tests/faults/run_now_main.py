"""A process that runs jobs now: `python -m tests.faults.run_now_main '{"url": …}'`.

Each line on standard input asks for one call; each line on standard output says what became of it. It ends with its
standard input, and its runs end with it or when the file `open` is there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from leasehold import AtCapacity, Leasehold


def register(app: Leasehold, folder: Path, **settings: Any) -> Any:
    @app.task(**settings)
    async def hold() -> str:
        while not (folder / "open").exists():
            await asyncio.sleep(0.01)
        return "done"

    return hold


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    app = Leasehold(config["url"], schema=config["schema"], shutdown_grace=config.get("shutdown_grace", 0))
    hold = register(app, Path(config["folder"]), **config["settings"])
    notify({"ready": True})
    for _ in sys.stdin:
        try:
            notify({"id": app.run_now(hold).id})
        except AtCapacity as refused:
            holders = [dataclasses.asdict(holder) for holder in refused.holders]
            notify(
                {"holders": holders, "retry_after": refused.retry_after, "max_running": refused.max_running}
            )
    app.close()


def notify(what: dict[str, Any]) -> None:
    print(json.dumps(what, default=str), flush=True)


if __name__ == "__main__":
    main()
