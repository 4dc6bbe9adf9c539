"""API keys as texts: :mod:`lamella.snapshot.api_key`, by the name that other parts of the service know it by."""

from lamella.snapshot.api_key import PREFIX, RANDOM_BYTES, is_key, key_sha256, key_text

__all__ = ["PREFIX", "RANDOM_BYTES", "is_key", "key_sha256", "key_text"]
