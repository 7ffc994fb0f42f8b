"""The values of Recollect: frozen, typed, without behaviour of their own."""
