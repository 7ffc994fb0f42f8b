"""What came of a recall, in the words an operator counts by."""

from __future__ import annotations

from enum import StrEnum


class RecallOutcome(StrEnum):
    """Why memories were, or were not, part of an answer; one for each recall."""

    USED = "used"
    """Memory was searched, and what was found went into the answer's context."""

    MISSING = "missing"
    """Memory was searched and held nothing near enough: the user never said it, or the threshold is too high."""

    IGNORED = "ignored"
    """Nothing was searched, since the message did not call for it: manners, a tool's work, general knowledge."""

    DISABLED = "disabled"
    """Recall is switched off, by the settings or for this request."""

    POLICY_BLOCKED = "policy_blocked"
    """A rule forbids it: all that was found carries a tag that is withheld from prompts."""

    UNAVAILABLE = "unavailable"
    """Memory should have been searched and could not be: a store or a model failed or took too long."""
