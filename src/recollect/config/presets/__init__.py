"""Named defaults, one TOML file each; `recollect --preset NAME` puts them below your own settings."""
