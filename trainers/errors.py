"""The error of training that a user can mend."""


class TrainingError(ValueError):
    """A run that cannot start or go on; the message is one line that says what to do."""
