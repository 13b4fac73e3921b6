"""The MCP server: `from leasehold.mcp import McpApp`. Needs the extra: `pip install 'leasehold[mcp]'`.

leasehold mcp mymodule:app --with-worker     # over stdin and stdout, as clients start it
leasehold serve mymodule:app --mcp           # over streamable HTTP, at /mcp
mcp = McpApp(app, hosts=["api.example.org"])                # inside your own ASGI app
api = FastAPI(lifespan=lambda _: mcp.running())             # it answers inside this context
api.mount("/mcp", mcp)
"""

from leasehold.domain.errors import need_extra as _need_extra

_need_extra("mcp", "mcp")

from leasehold.surfaces.mcp.server import McpApp  # noqa: E402 - needs the extra

__all__ = ["McpApp"]
