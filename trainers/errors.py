"""Define the errors of training and inference."""


class TrainingError(ValueError):
    """Raised if a run cannot start or continue; the message is one line with the remedy."""


class DivergenceError(TrainingError):
    """Raised if the loss or the gradient of a run is not finite."""


class StorageError(TrainingError):
    """Raised if an output cannot be written or was removed; the run can resume after the cause is removed."""


class TaskDataError(ValueError):
    """Raised if a file of a fine-tuning task is invalid; the message is one line with file and row."""
