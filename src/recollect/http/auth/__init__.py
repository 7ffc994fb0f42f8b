"""Authentication and permissions of all HTTP interfaces."""
