"""Numbers of things in messages: "1 block", "2,000 blocks"."""

from __future__ import annotations


def counted(number: float, singular: str, many: str | None = None) -> str:
    """Returns a number with its noun, as ``1 block`` and ``2,000 blocks``; a fraction has one digit.

    ``many``: the form for all other numbers than 1; None: ``singular`` with an s. Both may end with a verb: ``"block
    was", "blocks were"``.
    """
    text = f"{number:,.1f}" if isinstance(number, float) and not number.is_integer() else f"{int(number):,}"
    return f"{text} {singular if number == 1 else many or singular + 's'}"
