"""How well it finds, measured on data the user has: conversations, messages, pairs of sentences, recipes."""
