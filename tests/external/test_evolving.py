"""Changes of columns that bring a table's schema to its source's, over random pairs."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.evolution import evolve
from lamella.snapshot.source.evolution import schema_changes

_NAMES = ("a", "b", "c", "d", "A1", "x.y", "e")
_WIDER = {"int8": "int16", "int16": "int32", "int32": "int64", "float32": "float64", "decimal(5,2)": "decimal(9,2)"}


def columns(random: Random, depth: int = 0) -> tuple[Column, ...]:
    """Some columns without ids, structs, lists and maps among them."""
    names = random.sample(_NAMES, random.randint(1, 5))
    return tuple(column(random, name, depth) for name in names)


def column(random: Random, name: str, depth: int) -> Column:
    """One of them."""
    kind = random.choice(("struct", "list", "map", *_WIDER)) if depth < 2 else random.choice((*_WIDER, "string"))
    if kind == "struct":
        return Column(name=name, type=kind, fields=columns(random, depth + 1))
    if kind == "list":
        return Column(name=name, type=kind, fields=(column(random, "element", depth + 1),))
    if kind == "map":
        key = Column(name="key", type="string", nullable=False)
        return Column(name=name, type=kind, fields=(key, column(random, "value", depth + 1)))
    return Column(name=name, type=kind)


def edited(random: Random, old: tuple[Column, ...], depth: int = 0) -> tuple[Column, ...]:
    """What may become of columns that have ids: some go, come, change their names, types and places."""
    remaining = [each for each in old if random.random() < 0.7]
    names = random.sample(_NAMES, len(remaining)) if random.random() < 0.6 else [each.name for each in remaining]
    found = []
    for each, name in zip(remaining, names, strict=True):
        now = msgspec.structs.replace(each, name=name)
        if each.type == "struct":
            now = msgspec.structs.replace(now, fields=edited(random, each.fields, depth + 1))
        elif each.fields:
            inner = each.fields[-1]
            if inner.type == "struct":
                inner = msgspec.structs.replace(inner, fields=edited(random, inner.fields, depth + 2))
            elif random.random() < 0.3:
                inner = msgspec.structs.replace(inner, type=_WIDER.get(inner.type, inner.type))
            now = msgspec.structs.replace(now, fields=(*each.fields[:-1], inner))
        elif random.random() < 0.3:
            now = msgspec.structs.replace(now, type=_WIDER.get(each.type, each.type))
        found.append(now)
    free = [name for name in _NAMES if name not in {each.name for each in found}]
    for name in random.sample(free, random.randint(0 if found else 1, min(2, len(free)))):
        found.insert(random.randint(0, len(found)), column(random, name, depth))
    return tuple(found)


def shape(tree: tuple[Column, ...], known: frozenset[int]) -> list[object]:
    """Names, types and order, with the ids of columns that were there before."""
    return [(c.name, c.type, c.id if c.id in known else 0, shape(c.fields, known)) for c in tree]


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.few(60)
def test_the_changes_make_the_wanted_columns_and_keep_what_columns_are(seed: int) -> None:
    """Names, types, order and ids of the columns that stay; what is new has an id that nobody had."""
    random = Random(seed)
    old = Schema.assign(columns(random))
    wanted = edited(random, old.columns)
    changes = schema_changes(old.columns, wanted)
    known = frozenset(range(1, old.last_column_id + 1))
    if not changes:
        assert shape(wanted, known) == shape(old.columns, known)
        return
    made = evolve(old, changes)
    assert shape(made.columns, known) == shape(wanted, known)
    assert schema_changes(made.columns, made.columns) == ()


def test_a_type_that_does_not_widen_is_refused() -> None:
    """The column is named by its path."""
    inner = Column(name="x", type="string", id=2)
    old = (Column(name="s", type="struct", id=1, fields=(inner,)),)
    new = (Column(name="s", type="struct", id=1, fields=(msgspec.structs.replace(inner, type="int64"),)),)
    with pytest.raises(InvalidSchema, match=r"'s\.x' was string and is now int64"):
        schema_changes(old, new)
