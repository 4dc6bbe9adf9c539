"""Advice: how much of a table look-ups skip, and what an index or another layout would change, beforehand.

Nothing here reads anything, and no answer about rows depends on it. What is made of manifests alone are expectations:
of look-ups of single values (``=``, or one value of a list), each different value as likely as the others.
"""

from lamella.snapshot.advice.cover import Cover, cover_of
from lamella.snapshot.advice.effectiveness import Effectiveness, effectiveness
from lamella.snapshot.advice.line import Line, line_of
from lamella.snapshot.advice.sizing import Sizing, for_budget, for_options

__all__ = [
    "Cover",
    "Effectiveness",
    "Line",
    "Sizing",
    "cover_of",
    "effectiveness",
    "for_budget",
    "for_options",
    "line_of",
]
