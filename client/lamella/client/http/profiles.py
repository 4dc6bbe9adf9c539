"""The service of a client that is not given a URL: from the environment, or from a profile in a file.

Used by ``Lamella()``, ``AsyncLamella()`` and the command line. A URL and its key come from one of these together, so
that a key is not sent to another service.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from lamella.client.http.credential import check_token, token_of
from lamella.snapshot.errors import InvalidRequest

URL: Final = "LAMELLA_URL"
#: The variable with the name of a profile, and that with the file of all profiles.
PROFILE: Final = "LAMELLA_PROFILE"
PROFILES_FILE: Final = "LAMELLA_PROFILES_FILE"
#: The profile that is used when none is named.
DEFAULT: Final = "default"
_MEMBERS: Final = ("url", "token", "token_file")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a service and its key, with at most one of ``token`` and ``token_file``."""

    url: str
    token: str | None = None
    token_file: str | os.PathLike[str] | None = None

    def __repr__(self) -> str:
        return f"Service(url={self.url!r})"  # without the key


def service_of(
    url: str | None,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    profile: str | None,
    environment: Mapping[str, str] | None = None,
) -> Service:
    """Return the service of a client's arguments.

    With ``url``, the arguments as they are. Otherwise the URL and key of ``profile``; of ``LAMELLA_URL`` with
    ``LAMELLA_TOKEN`` or ``LAMELLA_TOKEN_FILE``; of the profile in ``LAMELLA_PROFILE``; or of the profile "default".
    ``token`` and ``token_file`` replace the key. ``environment``: None: that of the process.

    Raises InvalidRequest when no service is found, naming where it was looked for; for ``url`` and ``profile``
    together; for a profile that does not exist or is not valid. No error shows a key.
    """
    variables = os.environ if environment is None else environment
    if url is not None:
        if profile is not None:
            raise InvalidRequest("give either a url or a profile")
        return Service(url=url, token=token, token_file=token_file)
    found = _found(profile, variables)
    if found is None:
        raise InvalidRequest(
            f"no service is named: give a url or a profile, set {URL} or {PROFILE}, or write a profile {DEFAULT!r}"
            f" with a url to {profiles_file(variables)} (the file of {PROFILES_FILE}, if that is set)"
        )
    if token is not None or token_file is not None:
        return Service(url=found.url, token=token, token_file=token_file)
    return found


def _found(profile: str | None, variables: Mapping[str, str]) -> Service | None:
    if profile is None and variables.get(URL):
        token, token_file = token_of(variables)
        return Service(url=variables[URL], token=token, token_file=token_file)
    named = profile if profile is not None else variables.get(PROFILE) or None
    return profile_of(named or DEFAULT, variables, required=named is not None)


def profile_of(name: str, variables: Mapping[str, str], *, required: bool = True) -> Service | None:
    """Return the service of a profile. One without a key gets that of the environment.

    None: there is no such profile, and it is not ``required``. Raises InvalidRequest for a profile that is missing or
    not valid.
    """
    path = profiles_file(variables)
    profiles = _read(path)
    if profiles is None or name not in profiles:
        if not required:
            return None
        names = ", ".join(profiles or ()) or "none"
        why = "does not exist" if profiles is None else f"has no profile {name!r}; it has {names}"
        raise InvalidRequest(f"the profile {name!r} is not there: the file {path} {why}", profile=name)
    return _checked(name, profiles[name], path, variables)


def profiles_file(variables: Mapping[str, str]) -> Path:
    """Return the path of the file with all profiles; it need not exist."""
    given = variables.get(PROFILES_FILE)
    if given:
        return Path(given).expanduser()
    folder = variables.get("XDG_CONFIG_HOME")
    if folder:
        return Path(folder) / "lamella" / "profiles.toml"
    home = variables.get("HOME") or "/"  # a process without a home folder has no profiles
    return Path(home) / ".config" / "lamella" / "profiles.toml"


def _read(path: Path) -> dict[str, Any] | None:
    """Return the members of a file of profiles; None if there is no file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidRequest(f"the file of profiles {path} cannot be read: {error.strerror}") from error
    except ValueError:  # its message may show a part of the file, so it is not chained
        raise InvalidRequest(f"the file of profiles {path} is not valid TOML") from None


def _checked(name: str, given: object, path: Path, variables: Mapping[str, str]) -> Service:
    where = f"the profile {name!r} in {path}"
    if not isinstance(given, dict) or not isinstance(given.get("url"), str) or not given["url"]:
        raise InvalidRequest(f"{where} has no url, which is a text", profile=name)
    others = sorted(set(given) - set(_MEMBERS))
    if others:
        raise InvalidRequest(f"{where} has {', '.join(others)}: its members are {', '.join(_MEMBERS)}", profile=name)
    token, token_file = given.get("token"), given.get("token_file")
    if any(value is not None and not isinstance(value, str) for value in (token, token_file)):
        raise InvalidRequest(f"token and token_file of {where} are texts", profile=name)
    if token is not None and token_file is not None:
        raise InvalidRequest(f"{where} has a token and a token_file: keep one of them", profile=name)
    if token_file is not None:
        return Service(url=given["url"], token_file=path.parent / Path(token_file).expanduser())
    if token is not None:
        return Service(url=given["url"], token=check_token(token, f"the token of {where} is not valid"))
    token, token_file = token_of(variables)
    return Service(url=given["url"], token=token, token_file=token_file)
