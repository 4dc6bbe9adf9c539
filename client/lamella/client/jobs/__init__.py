"""Jobs: what they do, and the worker that has them done in processes of their own."""
