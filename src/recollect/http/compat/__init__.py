"""Memories over HTTP: each door reads its own shapes, calls the one service, and shapes the answer."""
