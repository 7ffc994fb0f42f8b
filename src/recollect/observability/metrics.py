"""The metrics, each declared once. No label has a user, an id or content."""

from __future__ import annotations

from recollect.observability.metric_types import counter, gauge, histogram

# Learning
EXTRACTIONS = counter("memory_extraction_count_total", "Extractions that were started.")
EXTRACTED = counter("memory_extraction_success_total", "Extractions that succeeded, with or without memories.")
EXTRACTION_ERRORS = counter("memory_extraction_errors_total", "Extractions that failed; most are retried.")
SAVED = counter("memory_saved_count_total", "Memories stored: extracted, or added.", "how")
REMEMBER_SECONDS = histogram("recollect_remember_seconds", "Time until a turn is on disk.")

# Recall
RETRIEVED = counter("memory_retrieved_count_total", "Memories put into prompts.")
RECALLS = counter("recollect_recalls_total", "Recalls, by outcome.", "outcome")
RECALL_SECONDS = histogram("recollect_recall_seconds", "Duration of a recall.")
RECALL_STEP_SECONDS = histogram("recollect_recall_step_seconds", "Duration of each step of a recall.", "step")
SEARCH_SECONDS = histogram("recollect_search_seconds", "Duration of a search.")
CACHE_LOOKUPS = counter("recollect_cache_lookups_total", "Cache lookups: hit, miss or away.", "cache", "result")

# Jobs
JOBS = gauge("recollect_jobs", "Jobs in the ledger, by state.", "state")
JOBS_OLDEST_SECONDS = gauge("recollect_jobs_oldest_due_seconds", "Age of the oldest due job.")
JOB_FAILURES = gauge("recollect_jobs_failures_in_a_row", "Consecutive failures of jobs.")
JOBS_DONE = counter("recollect_jobs_done_total", "Jobs that succeeded.", "kind")
JOBS_FAILED = counter("recollect_jobs_failed_total", "Tries of jobs that failed.", "kind")
JOBS_DEAD = counter("recollect_jobs_dead_total", "Jobs that failed all their tries.", "kind")
JOB_SECONDS = histogram("recollect_job_seconds", "Duration of a job.", "kind")

# Models
LLM_CALLS = counter("recollect_llm_calls_total", "LLM calls, by step and model.", "step", "model")
LLM_TOKENS = counter(
    "recollect_llm_tokens_total", "LLM tokens, in and out, by step and model.", "step", "model", "direction"
)
MODEL_CHANGE = gauge(
    "recollect_model_change_memories", "During a change of the embedding model: memories done, and in total.", "count"
)

# Health
DEGRADED = gauge("recollect_degraded", "1 while a part is degraded, by part.", "part")
BREAKER_OPEN = gauge("recollect_breaker_open", "1 while the circuit breaker of a part is open.", "part")
JOURNAL_SESSIONS = gauge("recollect_journal_sessions", "Sessions with turns that wait on disk.", aggregation="sum")

# Requests
HTTP_REQUESTS = counter("recollect_http_requests_total", "Requests, by route.", "method", "route", "status")
HTTP_SECONDS = histogram("recollect_http_request_seconds", "Duration of a request, to its last byte.", "route")
LIMITED = counter("recollect_rate_limited_total", "Requests and writes rejected by a limit.", "limit")
