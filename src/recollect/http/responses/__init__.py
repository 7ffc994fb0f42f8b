"""OpenAI's Responses and Conversations: kept in the ledger, answered by any upstream, with memory."""
