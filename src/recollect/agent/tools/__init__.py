"""What an agent can do: Python functions, HTTP requests, MCP servers, and its own memory."""
