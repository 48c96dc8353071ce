"""Define, parse and validate the flags of commands."""
