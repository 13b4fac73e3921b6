"""A worker process with a schedule of one second: `python -m tests.faults.schedule_main '{…}'`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

from leasehold import Context, Leasehold
from tests.faults import tasks
from tests.faults.worker_main import main


def register(app: Leasehold, folder: Path, lease: float) -> SimpleNamespace:
    known = tasks.register(app, folder, lease)

    @app.schedule(every="1s", missed="all", overlap="allow")
    @app.task(lease=lease)
    async def second(ctx: Context, tick: datetime) -> str:
        with known.log.run(ctx, note=tick.isoformat()):
            return tick.isoformat()

    return SimpleNamespace(**vars(known), second=second)


if __name__ == "__main__":
    main(register)
