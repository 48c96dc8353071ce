"""Define the errors of the data pipelines that a user can fix; their messages contain the remedy."""


class SourceError(ValueError):
    """The input cannot be read, or an option does not apply to it."""


class DatasetError(ValueError):
    """A dataset is missing, incomplete or invalid, or differs from the requested one."""


class OutputError(ValueError):
    """An output directory contains other files, is in use, or is not writable."""


class OutputFileError(ValueError):
    """An output file cannot or must not be written."""


class SubmitError(ValueError):
    """A flag of a submission is invalid, or a service rejects the request."""


class AccessError(ValueError):
    """A bucket, filesystem or service cannot be reached, or rejects a request."""


class EngineError(ValueError):
    """A Beam runner fails outside the pipeline, for example because its server does not answer."""
