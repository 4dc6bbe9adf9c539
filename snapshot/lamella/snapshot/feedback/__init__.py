"""Readers' reports: blocks that held no row for a filter, remembered for all who ask the same.

A report is somebody's word, not a proof. What it depends on is in its key: the filter by what it means, the time zone,
the case rule, the columns by id, type and default, and the block by its content.
"""

from lamella.snapshot.feedback.asking import (
    ENABLED,
    FeedbackSource,
    check_feedback,
    is_enabled,
    told_of,
)
from lamella.snapshot.feedback.facts import Facts, Told
from lamella.snapshot.feedback.question import DIGEST_BYTES, digest_of, questions

__all__ = [
    "DIGEST_BYTES",
    "ENABLED",
    "Facts",
    "FeedbackSource",
    "Told",
    "check_feedback",
    "digest_of",
    "is_enabled",
    "questions",
    "told_of",
]
