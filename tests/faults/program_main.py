"""A program that is nothing but a worker, as users write one: `asyncio.run(app.worker().run())`, no signal handled."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from pathlib import Path

from leasehold import Leasehold
from tests.faults.tasks import register
from tests.faults.worker_main import end_with_the_test


def main() -> None:
    config = json.loads(sys.argv[1])
    threading.Thread(target=end_with_the_test, daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    app = Leasehold(config["url"], schema=config["schema"])
    register(app, Path(config["folder"]), config["lease"])
    asyncio.run(app.worker(**config["settings"]).run())
    logging.getLogger("leasehold.worker").info("bye")


if __name__ == "__main__":
    main()
