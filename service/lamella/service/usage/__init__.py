"""How tables are used: recorded filters, prune rates, readers' feedback, the audit trail."""
