"""OpenAI's Responses and Conversations APIs with memory: stored in the ledger, answered by any upstream."""
