"""Run by Alembic. The connection, with its transaction, comes from :func:`lamella.service.catalog.migrate.migrate`."""

from alembic import context

from lamella.service.catalog.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter a column in place
    transactional_ddl=True,
)
context.run_migrations()
