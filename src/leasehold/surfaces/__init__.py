"""The surfaces: CLI, HTTP, MCP, dashboard. Each parses, calls `operations`, and renders; none imports another."""
