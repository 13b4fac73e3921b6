"""Jobs for AI agents: tools, and jobs as tasks (`io.modelcontextprotocol/tasks`), over stdio and streamable HTTP."""
