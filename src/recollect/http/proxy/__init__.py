"""The proxy: an OpenAI endpoint that remembers."""
