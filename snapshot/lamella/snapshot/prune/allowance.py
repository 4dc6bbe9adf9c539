"""How many blocks there may be in an answer that is made as a whole."""

from __future__ import annotations

from lamella.snapshot.errors import LimitExceeded


class Allowance:
    """``most`` blocks, or entries that stand for them (None: any number), of which parts are taken one by one."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._taken = 0

    def take(self, count: int) -> None:
        """Have so many more; raises LimitExceeded when there are too many together."""
        self._taken += count
        self.check(0)

    def check(self, count: int) -> None:
        """Raises LimitExceeded where so many more would be too many together."""
        if self._most is not None and self._taken + count > self._most:
            text = f"the answer would have more than {self._most} blocks; ask for less, or for pages"
            raise LimitExceeded(text, limit="answer_blocks", most=self._most)
