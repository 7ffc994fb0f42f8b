"""Metrics, traces and request ids of log lines, without content."""
