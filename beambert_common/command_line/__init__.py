"""Define, parse and check the flags of commands."""
