"""Looking after what is kept: re-embedding, moving in and out."""
