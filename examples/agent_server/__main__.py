"""`python -m examples.agent_server`: the server on SQLite. LEASEHOLD_URL points it at PostgreSQL, PORT elsewhere."""

from __future__ import annotations

import logging
import os

import uvicorn

from examples.agent_server import settings
from examples.agent_server.server import server


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    config = uvicorn.Config(server, port=int(os.environ.get("PORT", "8800")), log_config=None)
    socket = config.bind_socket()  # with PORT=0 the system chooses one
    socket.listen()  # who comes before the start-up is over waits for it
    print(f"{settings.WORKER_ID} listens on http://127.0.0.1:{socket.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[socket])


if __name__ == "__main__":
    main()
