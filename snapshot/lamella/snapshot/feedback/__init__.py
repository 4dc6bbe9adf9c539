"""Readers' reports: blocks that held no row for a filter, remembered for all who ask the same.

A report is somebody's word, not a proof. What it depends on is in its key: the filter by what it means, the time zone,
the case rule, the columns by id, type and default, and the block by its content.
"""

from lamella.snapshot.feedback.asking import (
    ENABLED,
    FeedbackSource,
    check_feedback,
    is_enabled,
    left_by_feedback,
)
from lamella.snapshot.feedback.facts import Facts, FeedbackResult, refine
from lamella.snapshot.feedback.question import DIGEST_BYTES, digest_of, questions

__all__ = [
    "DIGEST_BYTES",
    "ENABLED",
    "Facts",
    "FeedbackResult",
    "FeedbackSource",
    "check_feedback",
    "digest_of",
    "is_enabled",
    "left_by_feedback",
    "questions",
    "refine",
]
