"""Whose words a text is: those of its author, or text that was quoted or pasted."""
