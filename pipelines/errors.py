"""Errors of the data pipelines that a user can fix; the message says how."""


class SourceError(ValueError):
    """Input that cannot be read, or options that do not fit it."""


class DatasetError(ValueError):
    """A dataset that is missing, incomplete, or not what was asked for."""


class OutputError(ValueError):
    """An output directory that holds something else."""


class OutputFileError(ValueError):
    """An output file that cannot or must not be written."""


class SubmitError(ValueError):
    """A mistake in the flags, or a service that refuses; the message says what and what to do."""


class AccessError(ValueError):
    """A bucket, file system or service that is unreachable or rejects a request; the message says what to do."""


class EngineError(ValueError):
    """A runner of Beam's that fails before, or beside, the pipeline; the message says why and what to do."""
