"""A research agent behind MCP: searches and pages as durable jobs, followed by long polling, stopped by
scope and mode."""
