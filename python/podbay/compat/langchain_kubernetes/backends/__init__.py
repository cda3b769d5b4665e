"""What a sandbox delegates to."""
