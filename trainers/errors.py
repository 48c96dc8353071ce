"""The error of training that a user can mend."""


class TrainingError(ValueError):
    """A run that cannot start or continue; the message is one line that says what to do."""


class StorageError(TrainingError):
    """An output that cannot be written or was removed: no result of the training, which resumes when it is repaired."""


class TaskDataError(ValueError):
    """A file of a fine-tuning task that cannot be used; the message is one line that names file and row."""
