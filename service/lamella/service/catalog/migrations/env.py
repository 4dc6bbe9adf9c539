"""Run by Alembic. The connection, with its transaction, comes from :mod:`lamella.service.catalog.migrate`.

Without a connection the statements are written down instead.
"""

from alembic import context

from lamella.service.catalog.schema import metadata

if context.is_offline_mode():
    context.configure(
        dialect_name=context.config.attributes["dialect"],
        literal_binds=True,
        target_metadata=metadata,
        transactional_ddl=True,
    )
else:
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        render_as_batch=True,  # SQLite cannot alter a column in place
        transactional_ddl=True,
    )
with context.begin_transaction():
    context.run_migrations()
