"""The backends that a sandbox delegates to."""
