"""Who is asking, and what they may do. Every door is behind it."""
