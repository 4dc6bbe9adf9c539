"""Bloom filters in Parquet's format: XXH64 over plain-encoded keys, in split blocks."""

from lamella.snapshot.bloom.plain_encoding import key_bytes, key_hashes
from lamella.snapshot.bloom.split_block import SplitBlockBloom, xxh64, xxh64_numbers

__all__ = ["SplitBlockBloom", "key_bytes", "key_hashes", "xxh64", "xxh64_numbers"]
