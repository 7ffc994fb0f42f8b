"""One file a command; `recollect.cli.catalogue` says which is where."""
