"""N-grams and affixes: characters and not bytes, folding, and texts that are none."""

from __future__ import annotations

import unicodedata
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.expression.bound import BoundTest, Prefix
from lamella.snapshot.expression.nodes import like_parts
from lamella.snapshot.function.text import ChangedCase
from lamella.snapshot.index import kinds, ngram
from lamella.snapshot.index.ngram import fold_character, gram_keys, keys_in
from lamella.snapshot.schema import parse_type
from support import index_cases
from support.index_cases import Cells, built, claimed, equal, listed, opened, probe, taken, vector

TEXT = parse_type("string")
NO_UTF8 = b"abc\xffdef"


def like(pattern: str) -> BoundTest:
    """``c LIKE pattern``, however it is bound."""
    parts = like_parts(pattern, "\\")
    assert parts
    start = parts[0].encode() if isinstance(parts[0], str) else b""
    return Prefix(index_cases.leaf_of(TEXT), start, bool(start) and parts[1:] == (0,), pattern, parts)


def selected(name: str, blocks: list[Cells], test: BoundTest, **options: object) -> list[bool]:
    """Which blocks may have a match."""
    of = probe(built(kinds()[name], TEXT, blocks, options).part)
    true: list[bool] = claimed(of, test, range(len(blocks))).true.tolist()
    return true


def cells(*texts: str) -> Cells:
    """Texts as bytes."""
    return [text.encode() for text in texts]


def test_all_grams_of_all_pieces_must_be_there() -> None:
    """A block with every gram of one piece but not of the other has no match."""
    blocks = [cells("hello world"), cells("hello", "words"), cells("word", "worldly"), cells("he", "llo")]
    assert selected("ngram", blocks, like("%hello%world%")) == [True, False, False, False]
    assert selected("ngram", blocks, like("%llo%")) == [True, True, False, True]
    assert selected("ngram", blocks, like("hello%")) == [True, True, False, False]
    assert selected("ngram", blocks, equal(TEXT, b"worldly")) == [False, False, True, False]
    assert selected("ngram", blocks, listed(TEXT, [b"worldly", b"words"])) == [False, True, True, False]


def test_grams_do_not_reach_from_one_text_into_the_next() -> None:
    """``ab`` beside ``cd`` has no ``bc``, wherever the texts lie and however short they are."""
    for size in (1, 2, 3, 4):
        rng = Random(size)
        texts = ["".join(rng.choices("ab", k=rng.randint(0, 5))) for _ in range(200)]
        wanted = {text[at : at + size] for text in texts for at in range(len(text) - size + 1)}
        found, is_text = gram_keys(vector(TEXT, cells(*texts)), size, fold_case=False)
        assert is_text
        assert set(found.tolist()) == {keys_in(gram, size, fold_case=False).item() for gram in wanted}


def test_short_pieces_say_nothing_and_that_is_said() -> None:
    """A pattern without a piece of n characters keeps all, and the kind tells why."""
    kind = kinds()["ngram"]
    options = kind.options(TEXT, {"n": 4})
    assert selected("ngram", [cells("x")], like("%abc%"), n=4) == [True]
    assert kind.answers(like("%abc%"), options) == "no piece of fixed text has 4 characters"
    assert kind.answers(like("%abcd%"), options) is None
    assert kind.answers(like("%日本語だ%"), options) is None
    assert kind.answers(listed(TEXT, [b"abcdef", b"abc"]), options) is not None


def test_grams_are_of_characters() -> None:
    """Letters of several bytes count once, also beyond the first plane."""
    blocks = [cells("日本語"), cells("日本"), cells("x\U0001f600y")]
    assert selected("ngram", blocks, like("%日本語%")) == [True, False, False]
    assert selected("ngram", blocks, like("%x\U0001f600y%")) == [False, False, True]


@pytest.mark.parametrize("name", ["ngram", "affix"])
def test_a_block_with_bytes_that_are_no_text_is_selected(name: str) -> None:
    """They have no characters to look at, so nothing is known of such a block; nor of a filter with such bytes."""
    blocks = [cells("other"), [NO_UTF8, b"other"], [b"abc"]]
    assert selected(name, blocks, like("abcdef%"))[:2] == [False, True]
    assert selected(name, blocks, equal(TEXT, b"abcdef"))[:2] == [False, True]
    assert selected(name, blocks, equal(TEXT, NO_UTF8)) == [True, True, True]


@pytest.mark.slow
def test_folding_depends_on_nothing_around_a_character() -> None:
    """Of every character, what its other cases fold to is what it folds to: the index answers for all of them."""
    for point in [*range(0xD800), *range(0xE000, 0x110000)]:
        character = chr(point)
        folded = fold_character(character)
        for other in (character.lower(), character.upper(), character.casefold(), character.title()):
            assert "".join(map(fold_character, other)) == folded, f"U+{point:04X}"


def test_folded_grams_are_those_of_lower_and_upper_texts() -> None:
    """Also where a fold has more characters than the text, and where the last sigma differs from the others."""
    rng = Random(7)
    for _ in range(300):
        text = index_cases.text(rng).decode()
        for other in (text.lower(), text.upper()):
            keys = keys_in(text, 3, fold_case=True).tolist()
            assert keys_in(other, 3, fold_case=True).tolist() == keys
    whole, _ = gram_keys(vector(TEXT, cells("STRASSE", "Straße", "ΟΔΟΣ", "οδος")), 3, fold_case=True)
    assert set(keys_in("straße", 3, fold_case=True).tolist()) <= set(whole.tolist())
    assert len(whole) == len({"str", "tra", "ras", "ass", "sse", "οδο", "δος"})


def test_a_folded_index_answers_for_every_case() -> None:
    """Patterns of another case are looked up folded; what differs in more than case is ruled out."""
    blocks = [cells("Grüße aus KÖLN"), cells("nothing here")]
    for pattern in ("%köln%", "%KÖLN%", "%Köln%", "%GRÜSSE%"):
        assert selected("ngram", blocks, like(pattern), ignore_case=True) == [True, False]
    assert selected("ngram", blocks, like("%köln%")) == [False, False]


def older(monkeypatch: pytest.MonkeyPatch, unknown: str) -> None:
    """From now on fold as a Python whose Unicode lacks the other case of these letters."""
    monkeypatch.setattr(ngram, "fold_character", lambda c: c if c in unknown else fold_character(c))
    monkeypatch.setattr(unicodedata, "unidata_version", "13.0.0")


def test_a_part_says_by_which_unicode_it_folds() -> None:
    """One whose grams are folded; also when blocks are taken over, as long as all of them were folded alike."""
    kind, version = kinds()["ngram"], unicodedata.unidata_version
    folded, plain = (built(kind, TEXT, [cells("ÄB")], {"ignore_case": each}).part for each in (True, False))
    assert folded.header.facts["unicode"] == version
    assert "unicode" not in plain.header.facts
    assert taken(kind, [(folded, [0]), (folded, [0])]).part.header.facts["unicode"] == version
    assert "unicode" not in taken(kind, [(plain, [0])]).part.header.facts


def test_letters_that_another_unicode_folds_otherwise_are_not_looked_up() -> None:
    """A part that an older Python folded answers for ASCII, and keeps all blocks for others; so does a merged one."""
    kind, options = kinds()["ngram"], {"ignore_case": True, "n": 3}
    blocks = [cells("xx\ua7c7yy"), cells("Grüße aus KÖLN"), cells("nothing here")]
    with pytest.MonkeyPatch.context() as changed:
        older(changed, "\ua7c7üÖ")
        old = built(kind, TEXT, blocks, options).part
    new = built(kind, TEXT, blocks, options).part
    mixed = taken(kind, [(old, [0]), (new, [1]), (old, [2])]).part
    assert old.header.facts["unicode"] == "13.0.0"
    assert "unicode" not in mixed.header.facts
    for part in (old, mixed):
        for pattern, expected in (
            ("%x\ua7c7y%", None),
            ("%KÖLN%", None),
            ("%Grüße aus%", [False, True, False]),
            ("%aus%", [False, True, False]),
            ("nothing%", [False, False, True]),
        ):
            possible_outcomes = probe(part).possible_outcomes(like(pattern), np.arange(3))
            assert (None if possible_outcomes is None else np.asarray(possible_outcomes.true).tolist()) == expected, (
                pattern
            )
    assert claimed(probe(new), like("%x\ua7c7y%"), range(3)).true.tolist() == [True, False, False]


def test_a_part_of_an_older_release_answers_for_ascii() -> None:
    """It does not say by what it was folded."""
    kind = kinds()["ngram"]
    options = kind.options(TEXT, {"ignore_case": True})
    builder = kind.builder(TEXT, options)
    for block in (cells("Grüße aus KÖLN"), cells("nothing here")):
        builder.add(vector(TEXT, block))
        builder.end_block()
    sections, facts = builder.sections()
    del facts["unicode"]
    of = probe(opened("ngram", TEXT, options, sections, facts, 2).part)
    assert claimed(of, like("%Grüße aus%"), range(2)).true.tolist() == [True, False]
    assert of.possible_outcomes(like("%Grüße%"), np.arange(2)) is None


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_no_row_is_lost_whichever_unicode_folded_its_grams(seed: int) -> None:
    """One Python builds, another one asks, and any letters but ASCII's fold otherwise there: no match is left out."""
    rng = Random(seed)
    kind, options = kinds()["ngram"], {"ignore_case": True, "n": rng.randint(1, 4), "false_positives": 1e-6}
    blocks: list[Cells] = [[index_cases.text(rng) for _ in range(4)] for _ in range(4)]
    letters = sorted({c for block in blocks for text in block for c in text.decode() if not c.isascii()})
    with pytest.MonkeyPatch.context() as changed:
        older(changed, "".join(letter for letter in letters if rng.random() < 0.5))
        parts = [built(kind, TEXT, blocks[:2], options).part]
    parts.append(built(kind, TEXT, blocks[2:], options).part)
    merged = taken(kind, [(parts[0], [0, 1]), (parts[1], [0, 1])]).part
    for row, block in enumerate(blocks):
        for cell in block:
            text = cell.decode()
            start = rng.randint(0, len(text))
            test = Prefix(index_cases.leaf_of(TEXT), b"", False, "LIKE", (0, text[start : start + 9], 0))
            possible_outcomes = probe(merged).possible_outcomes(test, np.arange(4))
            assert possible_outcomes is None or np.asarray(possible_outcomes.true)[row], text
            possible_outcomes = probe(parts[row // 2]).possible_outcomes(test, np.arange(2))
            assert possible_outcomes is None or np.asarray(possible_outcomes.true)[row % 2], text


@pytest.mark.slow
def test_no_row_is_lost_when_lower_texts_are_looked_up_in_a_folded_index() -> None:
    """Whatever part of ``lower(c)`` or ``upper(c)`` is asked for, as the reader computes these, its block is kept."""
    rng = Random(12)
    for _ in range(60):
        blocks: list[Cells] = [[index_cases.text(rng) for _ in range(6)] for _ in range(5)]
        of = probe(built(kinds()["ngram"], TEXT, blocks, {"ignore_case": True}).part)
        for row, block in enumerate(blocks):
            for function in (ChangedCase("lower"), ChangedCase("upper")):
                found = function.rows(vector(TEXT, block))
                for cell in found.values.to_pylist():
                    text = cell.decode()
                    start = rng.randint(0, len(text))
                    piece = text[start : start + rng.randint(3, 8)]
                    if piece:
                        test = Prefix(index_cases.leaf_of(TEXT), b"", False, "LIKE", (0, piece, 0))
                        assert claimed(of, test, range(5)).true[row], f"{piece!r} of {text!r}"


def test_beginnings_and_endings_are_both_looked_at() -> None:
    """``a%b`` needs a text that begins so and one that ends so; other patterns are left to others."""
    blocks = [cells("alpha.csv", "beta.csv"), cells("alpha.txt"), cells("beta.csv"), cells("a"), [None]]
    assert selected("affix", blocks, like("alpha%")) == [True, True, False, False, False]
    assert selected("affix", blocks, like("%.csv")) == [True, False, True, False, False]
    assert selected("affix", blocks, like("al%.csv")) == [True, False, False, False, False]
    assert selected("affix", blocks, equal(TEXT, b"a")) == [False, False, False, True, False]
    assert selected("affix", blocks, equal(TEXT, b"alpha.csv")) == [True, False, False, False, False]
    assert selected("affix", blocks, like("%csv"), suffix_chars=0) == [True, True, True, True, False]
    assert selected("affix", blocks, like("alpha%"), values=1) == [True, True, False, False, False]


def test_a_prefix_that_all_texts_have_is_known_to_be_true_for_all() -> None:
    """NOT LIKE 'al%' is false for a block of which every text begins so: no row of it is needed."""
    of = probe(built(kinds()["affix"], TEXT, [cells("alpha", "alba"), cells("al", "beta"), [b"ali", None]]).part)
    possible_outcomes = claimed(of, like("al%"), range(3))
    assert possible_outcomes.false.tolist() == [False, True, False]
    assert possible_outcomes.null.tolist() == [False, False, True]
    assert claimed(of, like("alphabet%"), range(3)).false.tolist() == [True, True, True]


@pytest.mark.parametrize(("test", "helps"), [(like("%x%"), False), (like("_x"), True), (like("x_"), True)])
def test_affixes_answer_patterns_with_a_fixed_end(test: BoundTest, helps: bool) -> None:
    """A pattern that is open at both ends has neither a beginning nor an ending."""
    kind = kinds()["affix"]
    assert (kind.answers(test, kind.options(TEXT, {})) is None) == helps
