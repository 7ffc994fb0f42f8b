"""The HTTP server. Nothing outside of this folder depends on HTTP."""
