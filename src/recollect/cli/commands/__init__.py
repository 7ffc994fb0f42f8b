"""The commands; `recollect.cli.main` names the module of each."""
