"""The commands; `recollect.cli.registry` names the module of each."""
