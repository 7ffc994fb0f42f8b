"""MCP over stdio with the ledger opened in this process."""

from __future__ import annotations

from recollect.client import AsyncMemory
from recollect.config.settings import Settings
from recollect.errors import MissingExtra
from recollect.mcp.access import McpClient


async def serve_stdio(settings: Settings, client: McpClient) -> None:
    """Answer the client at standard input until the input ends."""
    try:
        from mcp.server.stdio import stdio_server

        from recollect.mcp.server import McpServer
    except ImportError:
        raise MissingExtra("The MCP server", "mcp") from None
    async with AsyncMemory(settings=settings) as memory:
        service = await memory.service()
        access = client.access(lambda: service, settings)
        server = McpServer(lambda ctx: access, settings.mcp_tools, keeps_sessions=True)
        try:
            async with stdio_server() as (read_stream, write_stream):
                options = server.sdk_server.create_initialization_options()
                await server.sdk_server.run(read_stream, write_stream, options)
        finally:
            await server.close()
