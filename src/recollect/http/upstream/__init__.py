"""The endpoints behind the proxy: what is sent to them, and what comes back, byte for byte."""
