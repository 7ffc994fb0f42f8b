"""State that server processes share through Redis: cached answers, rate limits, and change notifications."""
