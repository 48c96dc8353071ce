"""What goes wrong between here and a machine elsewhere."""


class SubmitError(ValueError):
    """A mistake in the flags, or a service that refuses; the message says what and what to do."""


class AccessError(ValueError):
    """A bucket, a file system or a service that cannot be reached, or refuses; the message says what to do."""


class EngineError(ValueError):
    """A runner of Beam's that fails before, or beside, the pipeline; the message says why and what to do."""
