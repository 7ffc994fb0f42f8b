"""What may be learned from: no small talk, no secrets, no words of others, nothing hidden."""
