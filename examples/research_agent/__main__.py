"""`python -m examples.research_agent`: the MCP server over HTTP, or with --stdio over stdin and stdout.

Without RESEARCH_PROXY it starts the loopback web beside it, so that there is something to research.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.research_agent")
    parser.add_argument("--stdio", action="store_true", help="speak over stdin and stdout")
    parser.add_argument("--port", type=int, default=8710)
    requested = parser.parse_args()
    if "RESEARCH_PROXY" in os.environ:
        serve(requested)
        return
    command = [sys.executable, "-m", "examples.research_agent.loopback_web"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as web:
        assert web.stdout is not None
        assert web.stdin is not None
        os.environ["RESEARCH_PROXY"] = web.stdout.readline().strip()
        try:
            serve(requested)
        finally:
            web.stdin.close()  # which ends it


def serve(requested: argparse.Namespace) -> None:
    from .server import serve_http, serve_stdio  # reads the settings, which are complete only now

    if not requested.stdio:
        print(f"MCP server at http://127.0.0.1:{requested.port}/mcp", flush=True)
    asyncio.run(serve_stdio() if requested.stdio else serve_http(requested.port))


if __name__ == "__main__":
    main()
