"""`import leasehold` is quick and needs no extra: what only some users need is imported where it is used."""

from __future__ import annotations

import json
import subprocess
import sys

# Drivers, web and tool servers, and the command line's own libraries.
NOT_AT_IMPORT = (
    "aiodocker", "fastapi", "httpx2", "mcp", "opentelemetry", "psycopg", "psycopg_pool", "redis", "rich", "starlette",
    "typer", "uvicorn",
)  # fmt: skip

PROGRAM = """
import json, sys
import leasehold
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_importing_the_package_pulls_in_no_optional_library():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    loaded = json.loads(done.stdout)  # and nothing else was printed
    assert "leasehold" in loaded
    assert [name for name in NOT_AT_IMPORT if name in loaded] == []
