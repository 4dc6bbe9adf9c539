"""JSON documents for ``get_json_object``: what Spark 4.3 was seen to make of them; and random ones, whole or not."""

from __future__ import annotations

from random import Random
from typing import Final

#: Where it is not certain what Spark makes of a document.
UNCERTAIN: Final = object()

_DEEP = 90
#: Documents, paths, and what Spark gives.
VECTORS: Final[tuple[tuple[str, str, object], ...]] = (
    # Members, places, and what lies on no path.
    *(
        ('{"a":{"b":"x"}}', "$.a.b", "x"),
        ('{"a":{"b":"x"}}', "$['a']['b']", "x"),
        ('{"a":{"b":"x"}}', "$.a.c", None),
        ('{"a":{"b":"x"}}', "$.b", None),
        ('{"a":{"b":"x"}}', "$.a[0]", None),
        ('{"A":1}', "$.a", None),
        ('{"a.b":1}', "$.a.b", None),
        ('{"a.b":1}', "$['a.b']", "1"),
        ('{"a b":1}', "$['a b']", "1"),
        ('{"é":1}', "$.é", "1"),
        ('{"日本":1}', "$['日本']", "1"),
        ('{"a-b":1}', "$.a-b", "1"),
        ('{"0":1}', "$.0", "1"),
        ('{"a[0]":1}', "$['a[0]']", "1"),
        ('{"\\u0061":1}', "$.a", "1"),
        ('{"a":"{\\"b\\":1}"}', "$.a.b", None),
        ('{"a":[{"b":1},{"b":2}]}', "$.a.b", None),
        ('{"a":[{"b":1},{"b":2}]}', "$.a[1].b", "2"),
        ('{"a":[1,[2,3]]}', "$.a[1][0]", "2"),
        ('{"a":[1,[2,3]]}', "$.a[2]", None),
        ('{"a":{"0":1}}', "$.a[0]", None),
        ('[{"a":1},{"a":2}]', "$[1].a", "2"),
        ('[{"a":1},{"a":2}]', "$.a", None),
        ('{"a":[]}', "$.a[0]", None),
        ('{"a":"xyz"}', "$.a[0]", None),
    ),
    # Null, and several members of one name.
    *(
        ('{"a":null}', "$.a", None),
        ('{"a":[null]}', "$.a[0]", "null"),
        ('{"a":[null]}', "$.a[0].b", None),
        ('{"a":1,"a":2}', "$.a", "1"),
        ('{"a":null,"a":2}', "$.a", "2"),
        ('{"a":1,"a":null}', "$.a", "1"),
        ('{"a":{"c":1},"a":{"b":2}}', "$.a.b", "2"),
        ('{"a":[],"a":[7]}', "$.a[0]", "7"),
    ),
    # Scalars, and how they are written.
    *(
        ('{"a":""}', "$.a", ""),
        ('{"a":true}', "$.a", "true"),
        ('{"a":false}', "$.a", "false"),
        ('{"a":0}', "$.a", "0"),
        ('{"a":-0}', "$.a", "0"),
        ('{"a":12345678901234567890123}', "$.a", "12345678901234567890123"),
        ('{"a":-9223372036854775808}', "$.a", "-9223372036854775808"),
        ('{"a":1.0}', "$.a", "1.0"),
        ('{"a":1.10}', "$.a", "1.1"),
        ('{"a":-0.0}', "$.a", "-0.0"),
        ('{"a":0e7}', "$.a", "0.0"),
        ('{"a":1e5}', "$.a", "100000.0"),
        ('{"a":0.1e1}', "$.a", "1.0"),
        ('{"a":9999999.5}', "$.a", "9999999.5"),
        ('{"a":1e7}', "$.a", "1.0E7"),
        ('{"a":12345678.9}', "$.a", "1.23456789E7"),
        ('{"a":-1700000000.123}', "$.a", "-1.700000000123E9"),
        ('{"a":999999999999999.0}', "$.a", "9.99999999999999E14"),
        ('{"a":0.001}', "$.a", "0.001"),
        ('{"a":0.00012}', "$.a", "1.2E-4"),
        ('{"a":0.1234567890123456}', "$.a", UNCERTAIN),
        ('{"a":1e15}', "$.a", UNCERTAIN),
        ('{"a":2e23}', "$.a", UNCERTAIN),
        ('{"a":1e400}', "$.a", UNCERTAIN),
        ('{"a":1e-7}', "$.a", UNCERTAIN),
        ('{"a":1,"b":1e400}', "$.a", "1"),
    ),
    # Text.
    *(
        ('{"a":"q\\"b\\\\s\\/\\n\\u0041\\u00e9"}', "$.a", 'q"b\\s/\nAé'),
        ('{"a":"\\ud83d\\ude00\U0001f600"}', "$.a", "\U0001f600\U0001f600"),
        ('{"a":"\\ud83d"}', "$.a", UNCERTAIN),
        ('{"a":1,"b":"\\ud83d"}', "$.a", "1"),
        ('{"a":"tab\there\nline"}', "$.a", "tab\there\nline"),
        ('{"a":"it\'s"}', "$.a", "it's"),
        ('{"a":"\x00\x7f\u2028"}', "$.a", "\x00\x7f\u2028"),
        ('{"a":"' + "é\U0001f600" * 4_000 + '"}', "$.a", "é\U0001f600" * 4_000),
    ),
    # Objects and arrays are written anew.
    *(
        ('{"a":{ }}', "$.a", "{}"),
        ('{"a":[ ]}', "$.a", "[]"),
        ('{"a" : [1, 2.50 ,null,true, "x" ]}', "$.a", '[1,2.5,null,true,"x"]'),
        ('{"a":{"x":1 ,"x":{"y":-0}}}', "$.a", '{"x":1,"x":{"y":0}}'),
        ('{"a":["é/\\u00e9\\/\\b\\u001f\x7f\u2028"]}', "$.a", '["é/é/\\b\\u001F\x7f\u2028"]'),
        ('{"a":["\U0001f600"]}', "$.a", UNCERTAIN),
        ('{"a":[0.1234567890123456]}', "$.a", UNCERTAIN),
        ('{"a":' + "[" * _DEEP + "]" * _DEEP + "}", "$.a", "[" * _DEEP + "]" * _DEEP),
    ),
    # No objects at all.
    *(
        *((text, "$.a", None) for text in ("", "  ", "a", "null", "1", '"a"', "[]", '"{\\"a\\":1}"', "N/A", "<a/>")),
        ('\n\t\r {"a":1}', "$.a", "1"),
        ('\ufeff{"a":1}', "$.a", UNCERTAIN),
        ('\x0b{"a":1}', "$.a", None),
        ('\xa0{"a":1}', "$.a", UNCERTAIN),
    ),
    # What is wrong behind the first value does not matter; within it, everything does.
    *((text, "$.a", "1") for text in ('{"a":1}x', '{"a":1}}', '{"a":1} {"a":2}', '{"a":1}\'')),
    *(
        (text, "$.a", None)
        for text in (
            *('{"a":1', '{"a":1,', '{"a":"x', '{"a":1,"b":', '{"a":1,"b":"x', '{"a":1,"b":[1', '{"a":1,"b":"\\'),
            *(
                '{"a":1,"b":"日本',
                '{"a":1,}',
                '{,"a":1}',
                '{"a":1,,"b":2}',
                '{"a":1 "b":2}',
                '{"a":1;"b":2}',
                '{"a"=1}',
            ),
            *("{a:1}", '{"a":1,"b":x}', '{"b":x,"a":1}', '{"a":1,"b":[1,2}', '{"a":1,"b":{"c":1]}', '{"a":"x"y}'),
            *(
                '{"a":1/*c*/}',
                '/*c*/{"a":1}',
                '#c\n{"a":1}',
                '{"a":1\x00}',
                '{"a":1,"b":"\\x"}',
                '{"a":1,"b":"\\u00g0"}',
            ),
            *(
                f'{{"a":{number}}}'
                for number in ("01", "00", "1.", ".5", "+1", "-", "1e", "0x10", "1_0", "1L", "1e5.0")
            ),
            *(
                f'{{"a":1,"b":{word}}}'
                for word in ("NaN", "-Infinity", "Infinity", "True", "tru", "truex", "nul", "01")
            ),
        )
    ),
    *(
        (text, "$.a", UNCERTAIN)
        for text in ("{'a':1}", "{\"a\":'x'}", '{"a":1,"b":"\\\'"}', '{"a":1,"b":"\\u\u0661000"}', '{"a":1,"b":é}')
    ),
    # Without the names, nothing else has to be looked at.
    *((text, "$.nosuch", None) for text in ("{'a':1}", '{"a":é}', '\ufeff{"a":1}', '{"a":2e23}')),
    # Sizes that Jackson may refuse.
    *(
        ('{"a":1,"b":' + "9" * 400 + "}", "$.a", "1"),
        ('{"a":1,"b":' + "9" * 600 + "}", "$.a", UNCERTAIN),
        ('{"a":' + "9" * 5_000 + "}", "$.a", UNCERTAIN),
        ('{"a":1,"b":' + "[" * 200 + "]" * 200 + "}", "$.a", UNCERTAIN),
        ('{"a":1,"b":' + "[" * 100_000 + "]" * 100_000 + "}", "$.a", UNCERTAIN),
        ('{"a":1,"' + "n" * 20_000 + '":2}', "$.a", UNCERTAIN),
        ('{"a":1,"b":"' + "x" * 5_000_000 + '"}', "$.a", UNCERTAIN),
        ('{"a":1,"b":"' + "{[" * 500 + '"}', "$.a", "1"),
    ),
)

#: Paths that lead somewhere in random documents now and then.
PATHS: Final = ("$.a", "$.b", "$.a.b", "$.a.a", "$.a[0]", "$.a[1].b", "$.b.a", "$['a b']", "$.é", "$[0]", "$[1].a")
_NAMES: Final = ("a", "b", "c", "a b", "é", "日本", 'x"y', "", "\U0001f600", "a\n", "\u2028")
_TEXTS: Final = (
    *("", "x", 'a"b', "é", "日本", "\U0001f600", "tab\t", "\x01", "\\", "/", "\u2028", "\x7f", "it's", '{"b":1}'),
    *("x" * 30, "\x00", "null", "1.0", "["),
)
_NUMBERS: Final = (
    *("0", "-0", "-1", "42", "1.0", "1.10", "1e5", "1E-3", "1e7", "1e15", "12345678901234567890123", "-0.0", "0e5"),
    *("1e400", "2e23", "3.14159265358979", "0.30000000000000004", "1E+2", "100e-2", "999999999999999.0", "5e-324"),
)
#: What makes a document another one, or none.
_DAMAGE: Final = (
    *"{}[]:,\"'\\/*#019.eE+-_tfnNu $a",
    *(
        "\\u",
        "\\ud83d",
        "\\u12",
        "\\'",
        "NaN",
        "Infinity",
        "\x0b",
        "\xa0",
        "\ufeff",
        "\x00",
        "\u2028",
        "/*c*/",
        "//x\n",
    ),
    *(
        "true",
        "nul",
        "00",
        "1.",
        ".5",
        "0x1F",
        "1e",
        ",,",
        "\\x",
        "\u0661",
        "\uff11",
        "\\u0061",
        "\\u\u0661041",
        "é",
        "\n",
    ),
)


def random_document(rng: Random) -> str:
    """A document, or something near to one."""
    text = _value(rng, 4)
    if text[0] not in "{[" and rng.random() < 0.9:
        text = f'{{"a":{text}}}'
    return _damaged(text, rng) if rng.random() < 0.4 else text


def _value(rng: Random, levels: int) -> str:
    chance = rng.random()
    if levels <= 0 or chance < 0.45:
        chance = rng.random()
        if chance < 0.35:
            return _text(rng.choice(_TEXTS), rng)
        if chance < 0.8:
            scaled = f"{rng.randint(-(10**6), 10**6) / 10 ** rng.randint(0, 8)}"
            return rng.choice((rng.choice(_NUMBERS), scaled))
        return rng.choice(("null", "true", "false"))
    if chance < 0.8:
        names = [rng.choice("aaab") if rng.random() < 0.75 else rng.choice(_NAMES) for _ in range(rng.randint(0, 4))]
        members = (f"{_text(name, rng)}{_blank(rng)}:{_blank(rng)}{_value(rng, levels - 1)}" for name in names)
        return f"{{{_blank(rng)}{f',{_blank(rng)}'.join(members)}{_blank(rng)}}}"
    elements = (_value(rng, levels - 1) for _ in range(rng.randint(0, 3)))
    return f"[{_blank(rng)}{f'{_blank(rng)},'.join(elements)}]"


def _text(text: str, rng: Random) -> str:
    return f'"{"".join(_character(character, rng) for character in text)}"'


def _character(character: str, rng: Random) -> str:
    code, chance = ord(character), rng.random()
    if character in '"\\':
        return f"\\{character}" if chance < 0.8 else f"\\u{code:04x}"
    if code > 0xFFFF and chance < 0.5:
        high, low = divmod(code - 0x10000, 0x400)
        return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04X}"
    escaped = chance < (0.5 if code < 32 or character == "/" else 0.06)
    if not escaped or code > 0xFFFF:
        return character
    return {"\n": "\\n", "\t": "\\t", "/": "\\/"}.get(character, f"\\u{code:04X}")


def _blank(rng: Random) -> str:
    return rng.choice((" ", "\n", "\t", "  ", "\r\n")) if rng.random() < 0.2 else ""


def _damaged(text: str, rng: Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, chance = rng.randint(0, len(text)), rng.random()
        if chance < 0.3:
            text = text[:at] + text[at + rng.randint(1, 3) :]
        elif chance < 0.75:
            text = text[:at] + rng.choice(_DAMAGE) + text[at:]
        elif chance < 0.87:
            text = text[:at]
        else:
            start = rng.randint(0, len(text))
            text = text[:at] + text[start : start + rng.randint(1, 8)] + text[at:]
    return text
