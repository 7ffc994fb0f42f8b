"""Upstreams: the endpoints that requests are forwarded to, byte for byte, and the built-in model."""
