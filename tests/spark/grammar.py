"""Random statements by the grammar of Spark's own parser.

ANTLR keeps the grammar in the parser as a transition network, written as numbers (version 4 of ``ATNSerializer``):
a state for each place of a rule, and edges that stand for a token, for another rule, or for nothing. A walk from the
first to the last state of a rule is a sentence of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

_RULE_STOP: Final = 7
_WITH_NUMBER: Final = frozenset({3, 4, 5, 12})  # states of blocks and ends of loops name another state
_RANGE, _RULE, _ATOM, _SET = 2, 3, 5, 7
#: Edges for any token, or for any but some.
_NOT_WALKED: Final = frozenset({8, 9})
_FAR: Final = 1_000_000


class Edge(NamedTuple):
    """To a state; by a rule, by one of some tokens, or, with neither, by nothing."""

    target: int
    rule: int | None = None
    tokens: tuple[int, ...] = ()


#: Makes the text of a rule, or of a token, in place of a walk.
Maker = Callable[[random.Random], str]


class Grammar:
    """The network of Spark's parser: edges by state, and the first and the last state of each rule."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        parser = jvm.org.apache.spark.sql.catalyst.parser.SqlBaseParser
        serialized = jvm.org.antlr.v4.runtime.atn.ATNSerializer.getSerialized(parser._ATN)
        self.rules = {str(name): at for at, name in enumerate(parser.ruleNames)}
        vocabulary = parser.VOCABULARY
        tokens = range(1, int(vocabulary.getMaxTokenType()) + 1)
        self.symbols = {at: str(vocabulary.getSymbolicName(at)) for at in tokens}
        self.literals = {at: str(text)[1:-1] for at in tokens if (text := vocabulary.getLiteralName(at))}
        self._read(iter([int(each) for each in jvm.java.util.Arrays.toString(serialized.toArray())[1:-1].split(",")]))

    def _read(self, rest: Iterator[int]) -> None:
        def read(count: int) -> list[int]:
            return [next(rest) for _ in range(count)]

        version, _, _ = read(3)
        assert version == 4, version
        stops = {}
        self.edges: list[list[Edge]] = []
        for state in range(next(rest)):
            self.edges.append([])
            kind = next(rest)
            if kind == 0:
                continue
            rule = next(rest)
            read(kind in _WITH_NUMBER)
            if kind == _RULE_STOP:
                stops[rule] = state
        read(next(rest))  # states that are not greedy
        read(next(rest))  # states of precedence
        self.starts = read(next(rest))
        self.stops = [stops[rule] for rule in range(len(self.starts))]
        read(next(rest))  # modes, of lexers
        sets = []
        for _ in range(next(rest)):
            intervals, _ = read(2)
            sets.append(tuple(token for _ in range(intervals) for token in inclusive(*read(2))))
        for _ in range(next(rest)):
            source, target, kind, first, second, _ = read(6)
            if kind in _NOT_WALKED:
                continue
            tokens = {_ATOM: (first,), _RANGE: tuple(inclusive(first, second))}.get(kind, ())
            edge = Edge(target, second if kind == _RULE else None, sets[first] if kind == _SET else tokens)
            self.edges[source].append(edge)


def inclusive(low: int, high: int) -> range:
    """From ``low`` to ``high``, which is one of them."""
    return range(low, high + 1)


class Sentences:
    """Random sentences. ``rules`` and ``tokens`` make the texts of some rules, and of tokens that have no text of their
    own. No sentence has one of the tokens ``without``."""

    def __init__(
        self, grammar: Grammar, rules: Mapping[str, Maker], tokens: Mapping[str, Maker], without: Iterable[str]
    ) -> None:
        self._grammar = grammar
        self._rules = {grammar.rules[name]: make for name, make in rules.items()}
        self._tokens = {at: tokens[name] for at, name in grammar.symbols.items() if name in tokens}
        left_out = set(without)
        assert left_out <= set(grammar.symbols.values()), left_out - set(grammar.symbols.values())
        allowed = {at for at, name in grammar.symbols.items() if name not in left_out}
        self._edges = [
            [
                each._replace(tokens=tuple(sorted(allowed.intersection(each.tokens))))
                for each in edges
                if not each.tokens or allowed.intersection(each.tokens)
            ]
            for edges in grammar.edges
        ]
        #: The fewest tokens from each state to the end of its rule.
        self._shortest = [_FAR] * len(self._edges)
        for stop in grammar.stops:
            self._shortest[stop] = 0
        while self._improve():
            pass

    def make(self, rule: str, rng: random.Random, length: int) -> str:
        """A sentence of a rule that takes the shortest way to its end after about so many tokens."""
        words: list[str] = []
        self._walk(self._grammar.rules[rule], rng, words, length)
        return " ".join(filter(None, words))

    def _improve(self) -> bool:
        """Go over all edges; whether a shorter way was found."""
        before = list(self._shortest)
        for state, edges in enumerate(self._edges):
            self._shortest[state] = min([self._shortest[state], *map(self._cost, edges)])
        return self._shortest != before

    def _cost(self, edge: Edge) -> int:
        """The fewest tokens by an edge and from there to the end of the rule."""
        own = len(edge.tokens[:1])
        if edge.rule is not None:
            own = 1 if edge.rule in self._rules else self._shortest[self._grammar.starts[edge.rule]]
        return min(_FAR, own + self._shortest[edge.target])

    def _walk(self, rule: int, rng: random.Random, words: list[str], length: int) -> None:
        if rule in self._rules:
            words.append(self._rules[rule](rng))
            return
        state, stop = self._grammar.starts[rule], self._grammar.stops[rule]
        while state != stop:
            edges = [each for each in self._edges[state] if self._cost(each) < _FAR]
            if len(words) >= length:
                shortest = min(map(self._cost, edges))
                edges = [each for each in edges if self._cost(each) == shortest]
            edge = rng.choice(edges)
            if edge.rule is not None:
                self._walk(edge.rule, rng, words, length)
            elif edge.tokens:
                words.append(self._text(rng.choice(edge.tokens), rng))
            state = edge.target

    def _text(self, token: int, rng: random.Random) -> str:
        made = self._tokens.get(token)
        return made(rng) if made else self._grammar.literals.get(token, self._grammar.symbols[token])
