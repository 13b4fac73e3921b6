"""The file and the configuration of docs/guides/mcp.md, as they stand there, driven by a client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from leasehold.surfaces.mcp.tools import TOOLS
from tests.backends import Backend
from tests.docs.pages import DOCS, blocks, write_files
from tests.surfaces.mcp.clients import Following


@pytest.mark.slow(4)
@pytest.mark.one_store("sqlite")
def test_a_client_with_the_configuration_of_the_page_runs_what_the_page_says(
    backend: Backend, tmp_path: Path
):
    assert write_files("guides/mcp.md", tmp_path) == ["tasks.py"]
    (server,) = [json.loads(block)["mcpServers"]["leasehold"] for block in blocks("guides/mcp.md", "json")]
    assert server["command"] == "leasehold"
    own = {"LEASEHOLD_URL": backend.url, "LEASEHOLD_SCHEMA": backend.schema, "PYTHONPATH": str(tmp_path)}
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "leasehold", *server["args"]],
        env={**os.environ, **own},
        cwd=tmp_path,
    )

    async def run() -> None:
        following = Following(lambda key, requested: {"action": "accept", "content": {"value": 3}})
        async with Client(stdio_client(parameters), extensions=[following]) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
            answer = await client.call_tool("research", {"topic": "leases"})
            assert answer.content[0].text == "leases, 3 levels deep"

    asyncio.run(run())


def test_the_page_lists_every_tool_and_its_scope():
    text = (DOCS / "guides/mcp.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Tools\n")
    table = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([\w, ]+) \|", section.partition("##")[0], re.MULTILINE)
    listed = {
        name.strip("`"): scope
        for names, scopes in table
        for name, scope in zip(names.split(", "), scopes.split(", "), strict=True)
    }
    assert listed == {tool.name: tool.scope for tool in TOOLS.values()}
