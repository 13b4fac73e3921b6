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
{statement}
print(json.dumps(sorted(sys.modules)))
"""


def test_importing_the_package_pulls_in_no_optional_library():
    loaded = {name.partition(".")[0] for name in loaded_by("import leasehold")}
    assert "leasehold" in loaded
    assert [name for name in NOT_AT_IMPORT if name in loaded] == []


def test_importing_the_app_loads_no_verb_of_the_store():
    loaded = loaded_by("from leasehold import Leasehold")
    assert "leasehold.stores.open" in loaded
    assert [
        name
        for name in loaded
        if name.startswith("leasehold.stores.verbs") or name == "leasehold.stores.store"
    ] == []


def loaded_by(statement: str) -> list[str]:
    program = PROGRAM.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    loaded: list[str] = json.loads(done.stdout)  # and nothing else was printed
    return loaded
