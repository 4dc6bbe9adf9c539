"""Sizes a filter may have. A filter over a limit is refused by name, never cut short in silence."""

from typing import Final

#: Characters of SQL text; longer lists belong into a JSON filter, which needs no tokenizer.
MAX_SQL_CHARACTERS: Final = 262_144
#: Words, numbers, quoted texts and signs of SQL text that needs the parser, without long lists of constants behind IN.
#: The parser takes up to 60 µs for each.
MAX_SQL_TOKENS: Final = 10_000
#: The same of all filters of one request together.
MAX_REQUEST_SQL_TOKENS: Final = 5 * MAX_SQL_TOKENS
#: Levels of types within types (arrays, maps, structs) in a cast. The parser's time grows with the square.
MAX_SQL_TYPE_DEPTH: Final = 8
#: Nodes that the parser may make for each token of a text, those of what it tries in vain included, and beside them.
MAX_NODES_PER_TOKEN: Final = 20
NODES_BESIDE: Final = 1_000
#: Levels of nesting.
MAX_DEPTH: Final = 100
#: Levels of nesting that SQL text may surely have. The parser recurses many times a level, so it gives up before
#: :data:`MAX_DEPTH`; a JSON filter has room for that.
SURE_SQL_DEPTH: Final = 20
#: Predicates in one filter.
MAX_NODES: Final = 10_000
#: Literals of one IN list.
MAX_IN_LITERALS: Final = 1_000_000
