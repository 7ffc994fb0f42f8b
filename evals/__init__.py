"""How well it finds: measured on conversations with known answers."""
