"""Run Milvus in its own network namespace, reachable only through a socket in its folder.

    unshare -n python -m tests.support.milvus_process FOLDER

The process and the server end when standard input closes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.support.relay import relay

PORT = 19530
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_REQUEST = "16sH14s"


def bring_up_loopback() -> None:
    """Bring up the loopback interface of the new network namespace."""
    with socket.socket() as any_socket:
        packed = struct.pack(_REQUEST, b"lo", 0, b"")
        _, flags, _ = struct.unpack(_REQUEST, fcntl.ioctl(any_socket, _GET_FLAGS, packed))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack(_REQUEST, b"lo", flags | _UP, b""))


def start_server(folder: Path) -> subprocess.Popen[bytes]:
    """Start the server with its data in the folder."""
    from milvus import MilvusServer

    server = MilvusServer(wait_for_started=False)
    server.set_base_dir(str(folder / "data"))
    server.config.set("proxy_port", PORT)
    server.start()
    process: subprocess.Popen[bytes] = server.server_proc
    # The server ends when the object is collected.
    globals()["_kept"] = server
    return process


async def serve(folder: Path) -> None:
    """Forward connections from the socket to the server."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay((reader, writer), lambda: asyncio.open_connection("127.0.0.1", PORT))

    await asyncio.start_unix_server(connected, folder / "socket")
    await asyncio.to_thread(sys.stdin.buffer.read)


def main() -> None:
    folder = Path(sys.argv[1])
    bring_up_loopback()
    process = start_server(folder)
    (folder / "number").write_text(str(process.pid))
    try:
        asyncio.run(serve(folder))
    finally:
        process.kill()
        process.wait()
        os._exit(0)


if __name__ == "__main__":
    main()
