"""`python -m examples.mail_assistant.server [port]`: the web server with its worker."""

from __future__ import annotations

import logging
import sys

import uvicorn

from examples.mail_assistant.api import web

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    # A SIGTERM waits for the current jobs: see `mail_worker`.
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8725
    uvicorn.run(web, host="127.0.0.1", port=port, log_level="warning")
