"""The key or token that a client shows: given as a text, or in a file, which may be changed while the client lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lamella.snapshot.errors import InvalidRequest

#: The variables that name a key where nobody else does.
TOKEN: Final = "LAMELLA_TOKEN"  # noqa: S105  # the name of a variable
TOKEN_FILE: Final = "LAMELLA_TOKEN_FILE"  # noqa: S105  # the name of a variable
#: What a file holds is as old as this, in seconds, at most.
_FRESH_S: Final = 30.0
#: A larger file holds something else.
_MAX_BYTES: Final = 64 * 1024

#: Gives the token to show next.
Credential = Callable[[], str]


class TokenFile:
    """The token in a file, without the white space around it.

    The file is read again every half a minute, so that whoever rotates a key has only to replace the file. While it
    cannot be read then, the token that it held goes on. ``clock`` gives seconds that only go up.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises InvalidRequest: the file cannot be read, or holds no token."""
        self.path = Path(path).absolute()
        self._clock = clock
        # one value, so that threads see a token with its time
        self._held = (self._read(), clock())

    def __call__(self) -> str:
        token, read_s = self._held
        if self._clock() - read_s >= _FRESH_S:
            with suppress(InvalidRequest):  # someone is about to write it
                token = self._read()
            self._held = (token, self._clock())
        return token

    def _read(self) -> str:
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise InvalidRequest(f"the token file {self.path} cannot be read: {error.strerror}") from error
        text = data.decode("ascii", "replace").strip() if len(data) <= _MAX_BYTES else ""
        return check_token(text, f"the token file {self.path} holds no token")


def credential_of(token: str | None, token_file: str | os.PathLike[str] | None) -> Credential | None:
    """What a client shows that is given these; None: nothing. Raises InvalidRequest: both, or no token."""
    if token is not None and token_file is not None:
        raise InvalidRequest("give either a token or a token_file")
    if token_file is not None:
        return TokenFile(token_file)
    if token is None:
        return None
    checked = check_token(token, "that is no token")
    return lambda: checked


def token_of(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The token, or the file that holds it, that ``LAMELLA_TOKEN`` or ``LAMELLA_TOKEN_FILE`` names.

    Raises InvalidRequest when both are set.
    """
    token, token_file = environment.get(TOKEN) or None, environment.get(TOKEN_FILE) or None
    if token is not None and token_file is not None:
        raise InvalidRequest(f"{TOKEN} and {TOKEN_FILE} are both set: set one of them")
    return token, token_file


def check_token(text: str, otherwise: str) -> str:
    """The token; raises InvalidRequest, which never shows it, for a text that cannot be sent as one."""
    if not text or any(ord(c) <= 32 or ord(c) > 126 for c in text):
        raise InvalidRequest(f"{otherwise}: a token is printable ASCII without spaces")
    return text
