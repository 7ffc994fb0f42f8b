"""What was measured, as one JSON document: the table, the other figures, and every question."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evals.files import FORMAT
from evals.metrics import auroc, mean_marks, percentile
from recollect import __version__

if TYPE_CHECKING:
    from evals.run import EvaluationRun, Probe, ScoredQuestion
    from recollect.config.settings import LoadedSettings


# They say where something is, not how it works.
_PLACES = {"home", "database", "host", "port", "log_level"}
_ALWAYS = ("embedder", "reranker", "fusion")


def document(run: EvaluationRun, *, benchmark: str, file: str, settings: dict[str, str]) -> dict[str, Any]:
    """Everything about a run, in plain values."""
    return {
        "format": FORMAT,
        "benchmark": benchmark,
        "file": file,
        "recollect": __version__,
        "settings": settings,
        "k": run.k,
        "conversations": run.conversations,
        "turns": run.turns,
        "scored": len(run.scored),
        "without_evidence": run.without_evidence,
        "categories": _categories(run.scored),
        "headline": _row([each for each in run.scored if each.question.headline]),
        "freshness": _freshness(run.scored),
        "tokens_in_top": _rounded(fmean(each.tokens for each in run.scored), 1),
        "search_ms": _latency(run),
        "index_ms_per_turn": _rounded(1000 * run.index_s / run.turns, 3),
        "abstention": _abstention(run),
        "notes": dict(run.notes.most_common()),
        "questions": [_question(each) for each in run.scored],
        "probes": [_probe(each) for each in run.probes],
    }


def settings_in_force(loaded: LoadedSettings) -> dict[str, str]:
    """The settings that were chosen and what is used in any case, without addresses and keys."""
    from recollect.config.settings import rows

    selected = [
        row for row in rows(loaded) if row.name not in _PLACES and not row.name.endswith(("_url", "_api_key"))
    ]
    return {row.name: row.value for row in selected if row.name in _ALWAYS or row.value != row.default}


def _categories(scored: Sequence[ScoredQuestion]) -> list[dict[str, Any]]:
    names = sorted({(each.question.headline is False, each.question.category) for each in scored})
    return [
        {"category": name, "headline": not outside, **_row([e for e in scored if e.question.category == name])}
        for outside, name in names
    ]


def _row(scored: Sequence[ScoredQuestion]) -> dict[str, Any]:
    """The means over some questions; only their number where there are none."""
    if not scored:
        return {"n": 0}
    marks = mean_marks([each.marks for each in scored])
    return {
        "n": len(scored),
        "gold": _rounded(fmean(len(each.question.gold) for each in scored), 2),
        **{name: _rounded(mark, 6) for name, mark in marks.items()},
    }


def _freshness(scored: Sequence[ScoredQuestion]) -> dict[str, Any] | None:
    fresh = [each.fresh for each in scored if each.fresh is not None]
    return {"n": len(fresh), "newest_first": _rounded(fmean(fresh), 6)} if fresh else None


def _latency(run: EvaluationRun) -> dict[str, float]:
    taken = [each.answer.ms for each in run.scored] + [each.answer.ms for each in run.probes]
    return {"p50": _rounded(percentile(taken, 0.5), 3), "p95": _rounded(percentile(taken, 0.95), 3)}


def _abstention(run: EvaluationRun) -> dict[str, Any] | None:
    if not run.probes:
        return None
    answerable = [each.answer.best for each in run.scored if each.question.headline]
    # One made to have no answer is near what is there on purpose: it counts for what it returns, not here.
    foreign = [each.answer.best for each in run.probes if each.kind != "unanswerable"]
    area = auroc(answerable, foreign)
    return {
        "probes": len(run.probes),
        "mean_returned": _rounded(fmean(len(each.answer.ranked) for each in run.probes), 3),
        "auroc": None if area is None else _rounded(area, 6),
    }


def _question(each: ScoredQuestion) -> dict[str, Any]:
    return {
        "id": each.question.id,
        "conversation": each.conversation,
        "category": each.question.category,
        "headline": each.question.headline,
        "question": each.question.text,
        "gold": list(each.question.gold),
        "found": [[id, _rounded(score, 6)] for id, score in each.answer.ranked],
        "marks": {name: _rounded(mark, 6) for name, mark in each.marks.items()},
        "newest_first": each.fresh,
        "ms": _rounded(each.answer.ms, 3),
    }


def _probe(each: Probe) -> dict[str, Any]:
    return {
        "conversation": each.conversation,
        "kind": each.kind,
        "text": each.text,
        "returned": len(each.answer.ranked),
        "best": _rounded(each.answer.best, 6) if each.answer.ranked else None,
        "ms": _rounded(each.answer.ms, 3),
    }


def _rounded(value: float, digits: int) -> float:
    return round(float(value), digits)
