"""The memory services over HTTP, a file a family of routes; all of them call the one service."""
