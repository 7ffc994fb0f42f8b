"""Every number that is watched, declared once. No label says who anyone is, or holds an id or what was said."""

from __future__ import annotations

from recollect.observability.metric_types import counter, gauge, histogram

# Learning
EXTRACTIONS = counter("memory_extraction_count_total", "Times it was tried to learn from what was said.")
EXTRACTED = counter("memory_extraction_success_total", "Times that went well, whether or not there was anything.")
EXTRACTION_ERRORS = counter("memory_extraction_errors_total", "Times that failed; most are tried again.")
SAVED = counter("memory_saved_count_total", "Memories kept: learned from what was said, or given.", "how")
REMEMBER_SECONDS = histogram("recollect_remember_seconds", "From being told something to having it on disk.")

# Recalling
RETRIEVED = counter("memory_retrieved_count_total", "Memories put into prompts.")
RECALLS = counter("recollect_recalls_total", "Recalls, by what came of them.", "outcome")
RECALL_SECONDS = histogram("recollect_recall_seconds", "How long a recall takes.")
RECALL_STEP_SECONDS = histogram("recollect_recall_step_seconds", "How long each step of a recall takes.", "step")
SEARCH_SECONDS = histogram("recollect_search_seconds", "How long a search takes.")
CACHE_LOOKUPS = counter("recollect_cache_lookups_total", "Looks into a cache: hit, miss or away.", "cache", "result")

# Work behind the answers
JOBS = gauge("recollect_jobs", "Jobs in the ledger, by how they stand.", "state")
JOBS_OLDEST_SECONDS = gauge("recollect_jobs_oldest_due_seconds", "How long the job that waits longest has been due.")
JOB_FAILURES = gauge("recollect_jobs_failures_in_a_row", "How often work failed since it last went well.")
JOBS_DONE = counter("recollect_jobs_done_total", "Jobs that were done.", "kind")
JOBS_FAILED = counter("recollect_jobs_failed_total", "Tries of jobs that failed.", "kind")
JOBS_DEAD = counter("recollect_jobs_dead_total", "Jobs that were given up after all their tries.", "kind")
JOB_SECONDS = histogram("recollect_job_seconds", "How long a job takes.", "kind")

# Models
LLM_CALLS = counter("recollect_llm_calls_total", "Questions to the LLM, by step and model.", "step", "model")
LLM_TOKENS = counter(
    "recollect_llm_tokens_total", "Tokens of the LLM, in and out, by step and model.", "step", "model", "direction"
)

MODEL_CHANGE = gauge(
    "recollect_model_change_memories", "While the embedding model is changed: memories done, and in total.", "count"
)

# How it is
DEGRADED = gauge("recollect_degraded", "1 while a part does not do what it should, by part.", "part")
BREAKER_OPEN = gauge("recollect_breaker_open", "1 while a part is not asked since it failed too often.", "part")
JOURNAL_SESSIONS = gauge("recollect_journal_sessions", "Sessions of which turns wait on disk.", aggregation="sum")

# Requests
HTTP_REQUESTS = counter("recollect_http_requests_total", "Requests, by route.", "method", "route", "status")
HTTP_SECONDS = histogram("recollect_http_request_seconds", "How long a request takes, to its last byte.", "route")
LIMITED = counter("recollect_rate_limited_total", "Requests and writes refused: too fast, or too many.", "limit")
