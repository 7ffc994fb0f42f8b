"""The HTTP doors. Nothing below this folder knows of HTTP."""
