"""Maintenance: jobs, schedules, expiry, quotas, consolidation, reviews and re-embedding."""
