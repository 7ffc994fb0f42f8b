"""APIs that clients of other memory services use: each translates its requests and responses for the one service."""
