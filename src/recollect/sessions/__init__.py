"""What a conversation comes to: its running summary, its episodes, its lessons, and what of it stays."""
