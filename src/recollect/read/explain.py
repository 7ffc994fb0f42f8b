"""Say in a few words why a memory was found."""

from __future__ import annotations

from recollect.ledger.terms import query_terms, terms_of


def explain(query: str, content: str, *, dense: float, lexical: float) -> str:
    """One line: the words it shares with the query, and how near it is in meaning."""
    said = set(terms_of(content))
    shared = [term for term in query_terms(query) if term in said]
    parts = []
    if shared:
        parts.append(f"shares {', '.join(shared[:6])} (words {lexical:.2f})")
    if dense > 0:
        parts.append(f"{_nearness(dense)} in meaning ({dense:.2f})")
    return "; ".join(parts) or "no closer than anything else"


def _nearness(cosine: float) -> str:
    return "very near" if cosine >= 0.7 else "near" if cosine >= 0.45 else "distant"
