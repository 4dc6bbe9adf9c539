"""Sizes a filter may have. A filter over a limit is refused by name, never cut short in silence."""

from typing import Final

#: Characters of SQL text; longer lists belong into a JSON filter, which needs no tokenizer.
MAX_SQL_CHARACTERS: Final = 262_144
#: Levels of nesting.
MAX_DEPTH: Final = 100
#: Levels of nesting that SQL text may surely have. The parser recurses many times a level, so it gives up before
#: :data:`MAX_DEPTH`; a JSON filter has room for that.
SURE_SQL_DEPTH: Final = 20
#: Predicates in one filter.
MAX_NODES: Final = 10_000
#: Literals of one IN list.
MAX_IN_LITERALS: Final = 1_000_000
