"""What was learned against what is known: the same, a change, or something new."""
