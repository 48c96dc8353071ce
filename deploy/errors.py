"""What goes wrong between here and a machine elsewhere."""


class SubmitError(ValueError):
    """A mistake in the flags, or a service that refuses; the message says what and what to do."""
