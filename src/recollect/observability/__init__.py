"""What an operator can see: numbers, traces, and which request a line of the log belongs to. Never what was said."""
