"""The doors: each reads its own shapes, calls the one service, and shapes the answer."""
