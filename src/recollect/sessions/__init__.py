"""Sessions: resolving them, summaries, episodes, lessons, and promotion of their memories."""
