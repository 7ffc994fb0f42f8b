"""The values Recollect speaks of: frozen, typed, without behaviour of their own."""
