"""Skip indexes: definitions, their parts, and the routes."""
