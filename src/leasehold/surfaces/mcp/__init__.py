"""The MCP server: tools, and jobs as MCP tasks (`io.modelcontextprotocol/tasks`), over stdio and streamable HTTP."""
