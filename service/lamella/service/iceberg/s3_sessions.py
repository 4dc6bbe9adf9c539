"""Temporary S3 credentials for one table: sessions of a role, limited by a policy, and used until shortly before their
end.

The session's policy can only take rights away from the role's own ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from cachetools import LRUCache
from structlog.typing import FilteringBoundLogger

from lamella.service.config.settings import Settings
from lamella.service.iceberg.granted import GrantedFolders, bucket_of
from lamella.snapshot.concurrency import SingleFlight
from lamella.snapshot.errors import NotExpressible, NotSignable, StoreError

#: A session is replaced when less than this share of its time is left.
_LAST_SHARE: Final = 4
_REMEMBERED: Final = 10_000
#: The limits of STS: characters of a policy, and of a session's name.
_MAX_POLICY: Final = 2_048
_MAX_NAME: Final = 64
_CONNECT_S: Final = 5
_READ_S: Final = 10
_DEFAULT_REGION: Final = "us-east-1"
#: Names of credentials in the options for S3, and in those of its client.
_KEYS: Final = (("key", "aws_access_key_id"), ("secret", "aws_secret_access_key"), ("token", "aws_session_token"))


class Keys(msgspec.Struct, frozen=True):
    """S3 credentials. ``token``: of a session."""

    key: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Keys(...)"


class Session(msgspec.Struct, frozen=True):
    """Credentials, and when they end (Unix milliseconds)."""

    keys: Keys
    expires_ms: int


#: Returns a session of the role with that name and policy.
AssumeRole = Callable[[str, str], Session]


class ServiceKeys:
    """The service's own S3 credentials: those in ``options`` (of s3fs), else those that botocore finds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._found: Any = None

    @property
    def region(self) -> str:
        """Return the region of the store."""
        given = self._options.get("client_kwargs", {}).get("region_name")
        return str(given or self._session().get_config_variable("region") or _DEFAULT_REGION)

    def current(self) -> Keys:
        """Return the credentials as they are now.

        Raises:
            NotSignable: there are none.
            StoreError: they cannot be had.
        """
        from botocore.exceptions import BotoCoreError

        try:
            with self._lock:
                if self._found is None and not self._options.get("anon"):
                    self._found = self._session().get_credentials()
                found = None if self._found is None else self._found.get_frozen_credentials()
        except BotoCoreError as error:
            raise StoreError(f"the service's own S3 credentials cannot be had: {error}") from error
        if found is None or not found.access_key or not found.secret_key:
            raise NotSignable("the service has no S3 credentials")
        return Keys(found.access_key, found.secret_key, found.token or None)

    def _session(self) -> Any:
        import botocore.session

        session = botocore.session.Session(profile=self._options.get("profile"))
        client = self._options.get("client_kwargs", {})
        key, secret, token = (self._options.get(mine) or client.get(name) for mine, name in _KEYS)
        if key:
            session.set_credentials(key, secret, token)
        return session


def assume_role(settings: Settings, keys: ServiceKeys) -> AssumeRole:
    """Return what requests sessions of the role in the settings from STS.

    It raises StoreError if STS refuses, and as :meth:`ServiceKeys.current`.
    """

    def assume(name: str, policy: str) -> Session:
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        own = keys.current()
        try:
            client = botocore.session.Session().create_client(
                "sts",
                region_name=keys.region,
                endpoint_url=settings.iceberg_sts_url,
                aws_access_key_id=own.key,
                aws_secret_access_key=own.secret,
                aws_session_token=own.token,
                config=Config(connect_timeout=_CONNECT_S, read_timeout=_READ_S, retries={"mode": "standard"}),
            )
            answer = client.assume_role(
                RoleArn=settings.iceberg_role_arn,
                RoleSessionName=name,
                Policy=policy,
                DurationSeconds=settings.iceberg_credentials_s,
            )
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            raise StoreError(f"STS gives no credentials of the role {settings.iceberg_role_arn}: {error}") from error
        found = answer["Credentials"]
        made = Keys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
        return Session(made, int(found["Expiration"].timestamp() * 1000))

    return assume


class S3Sessions:
    """Remembers sessions. ``partition``: of the ARNs (``aws``). ``clock`` returns Unix milliseconds."""

    def __init__(
        self,
        assume: AssumeRole,
        *,
        partition: str,
        lifetime_s: int,
        clock: Callable[[], int],
        log: FilteringBoundLogger,
    ) -> None:
        self._assume = assume
        self._partition = partition
        self._min_left_ms = lifetime_s * 1000 // _LAST_SHARE
        self._clock = clock
        self._log = log
        self._calls = SingleFlight()
        self._lock = threading.Lock()
        self._known: LRUCache[tuple[str, str], Session] = LRUCache(_REMEMBERED)

    def of(self, table_id: str, folders: GrantedFolders) -> Session:
        """Return a session that may use the folders of a table, with at least a quarter of its time left.

        Raises:
            NotExpressible: the locations are too long for a policy.
            NotSignable, StoreError: STS gives none.
        """
        policy = session_policy(folders, self._partition)
        key = (table_id, policy)
        with self._lock:
            known = self._known.get(key)
        if known is not None and known.expires_ms - self._clock() > self._min_left_ms:
            return known
        return self._calls.run(key, lambda: self._new(key))

    def _new(self, key: tuple[str, str]) -> Session:
        table_id, policy = key
        made = self._assume(f"lamella-{table_id}"[:_MAX_NAME], policy)
        with self._lock:
            self._known[key] = made
        self._log.info("credentials for an Iceberg table", table_id=table_id, expires_ms=made.expires_ms)
        return made


def session_policy(folders: GrantedFolders, partition: str = "aws") -> str:
    """Return the policy of a session that may only use these folders.

    Raises NotExpressible if it is longer than STS accepts.
    """
    arn = f"arn:{partition}:s3:::"
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [_objects(arn, each) for each in folders.read]}
    ]
    if folders.written:
        actions = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
        resources = [_objects(arn, each) for each in folders.written]
        statements.append({"Effect": "Allow", "Action": actions, "Resource": resources})
    for bucket in folders.buckets:
        below = [_key(each) + "*" for each in folders.read if bucket_of(each) == bucket]
        listing = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"{arn}{bucket}"]}
        statements.append({**listing, "Condition": {"StringLike": {"s3:prefix": below}}})
    text = msgspec.json.encode({"Version": "2012-10-17", "Statement": statements}).decode()
    if len(text) > _MAX_POLICY:
        raise NotExpressible(f"the locations of the table are too long for a session policy ({_MAX_POLICY} characters)")
    return text


def _objects(arn: str, folder: str) -> str:
    return f"{arn}{bucket_of(folder)}/{_key(folder)}*"


def _key(folder: str) -> str:
    return folder.removeprefix("s3://").partition("/")[2]
