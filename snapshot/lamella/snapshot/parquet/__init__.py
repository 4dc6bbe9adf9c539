"""Parquet footers as blocks: what a file states about itself, and which of it can be trusted."""

from lamella.snapshot.parquet.block import block_of, schema_of
from lamella.snapshot.parquet.footer import Footer, read_footer
from lamella.snapshot.parquet.ingest import ingest, ingest_arrays

__all__ = ["Footer", "block_of", "ingest", "ingest_arrays", "read_footer", "schema_of"]
