"""The REST API under /recollect/v1: everything the service can do, versioned."""
