"""Tools of an agent: Python functions, HTTP requests, MCP servers, and memory."""
