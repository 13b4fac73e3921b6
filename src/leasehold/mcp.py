"""The MCP server: `from leasehold.mcp import McpApp`. Needs the extra: `pip install 'leasehold[mcp]'`.

leasehold mcp mymodule:app --with-worker     # over stdin and stdout, as clients start it
leasehold serve mymodule:app --mcp           # over streamable HTTP, at /mcp
mcp = McpApp(app, hosts=["api.example.org"])                # inside your own ASGI app
api = FastAPI(lifespan=lambda _: mcp.running())             # it answers inside this context
api.mount("/mcp", mcp)
"""

try:
    import mcp as _mcp
except ModuleNotFoundError as _error:  # pragma: no cover
    if _error.name != "mcp":
        raise
    from leasehold.domain.errors import DriverMissing as _DriverMissing

    raise _DriverMissing("mcp", "mcp") from None
else:
    del _mcp

from leasehold.surfaces.mcp.server import McpApp

__all__ = ["McpApp"]
