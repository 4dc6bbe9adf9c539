"""Sizes a filter may have. A filter over a limit is refused by name, never cut short in silence."""

from typing import Final

#: Characters of SQL text; longer lists belong into a JSON filter, which needs no tokenizer.
MAX_SQL_CHARACTERS: Final = 262_144
#: Levels of nesting.
MAX_DEPTH: Final = 100
#: Predicates in one filter.
MAX_NODES: Final = 10_000
#: Literals of one IN list.
MAX_IN_LITERALS: Final = 1_000_000
