"""The web page: static files that use the REST API, served by the same process."""
