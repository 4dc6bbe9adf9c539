"""Bloom filters as Parquet has them: XXH64 over plainly encoded keys, in split blocks."""

from lamella.snapshot.bloom.plain import key_bytes, key_hashes
from lamella.snapshot.bloom.split_block import SplitBlockBloom
from lamella.snapshot.bloom.xxh64 import xxh64, xxh64_numbers

__all__ = ["SplitBlockBloom", "key_bytes", "key_hashes", "xxh64", "xxh64_numbers"]
