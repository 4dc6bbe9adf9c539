"""The API key or token of a client: a text, or a file, which may be replaced while the client runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lamella.snapshot.errors import InvalidRequest

#: The environment variables used when no key or token is given.
TOKEN: Final = "LAMELLA_TOKEN"  # noqa: S105  # the name of a variable
TOKEN_FILE: Final = "LAMELLA_TOKEN_FILE"  # noqa: S105  # the name of a variable
#: Seconds after which a token file is read again.
_FRESH_S: Final = 30.0
#: A larger file is not a token file.
_MAX_BYTES: Final = 64 * 1024

#: Returns the token for the next request.
Credential = Callable[[], str]


class TokenFile:
    """The token in a file, without surrounding white space.

    The file is read again every 30 seconds, so a key can be rotated by replacing the file. If the file cannot be read
    again, the last token is used. ``clock`` is a monotonic clock in seconds.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Raises InvalidRequest when the file cannot be read or does not contain a token."""
        self.path = Path(path).absolute()
        self._clock = clock
        # a single value, so that threads see a token together with its time
        self._current = (self._read(), clock())

    def __call__(self) -> str:
        token, read_s = self._current
        if self._clock() - read_s >= _FRESH_S:
            with suppress(InvalidRequest):  # the file may be being replaced
                token = self._read()
            self._current = (token, self._clock())
        return token

    def _read(self) -> str:
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise InvalidRequest(f"the token file {self.path} cannot be read: {error.strerror}") from error
        text = data.decode("ascii", "replace").strip() if len(data) <= _MAX_BYTES else ""
        return check_token(text, f"the token file {self.path} does not contain a valid token")


def credential_of(token: str | None, token_file: str | os.PathLike[str] | None) -> Credential | None:
    """The credential of a client; None: it has none. Raises InvalidRequest when both are given, or for an invalid
    token."""
    if token is not None and token_file is not None:
        raise InvalidRequest("give either a token or a token_file")
    if token_file is not None:
        return TokenFile(token_file)
    if token is None:
        return None
    checked = check_token(token, "the token is not valid")
    return lambda: checked


def token_of(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The token in ``LAMELLA_TOKEN``, and the path of the token file in ``LAMELLA_TOKEN_FILE``.

    Raises InvalidRequest when both are set.
    """
    token, token_file = environment.get(TOKEN) or None, environment.get(TOKEN_FILE) or None
    if token is not None and token_file is not None:
        raise InvalidRequest(f"{TOKEN} and {TOKEN_FILE} are both set: set one of them")
    return token, token_file


def check_token(text: str, otherwise: str) -> str:
    """Return the token; raises InvalidRequest, without showing the text, when it cannot be sent as a token."""
    if not text or any(ord(c) <= 32 or ord(c) > 126 for c in text):
        raise InvalidRequest(f"{otherwise}: a token is printable ASCII without spaces")
    return text
