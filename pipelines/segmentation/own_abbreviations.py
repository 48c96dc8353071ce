"""Read the abbreviations of a user, of `--abbreviations`."""

from beambert.pipelines.cleaning.rules import fold_whitespace, normalize_nfc
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import read_bytes
from beambert.pipelines.segmentation.boundary_repair import MAX_ABBREVIATION_CHARACTERS

_FORM = "give UTF-8 text with one abbreviation a line, such as bzgl."


def read_abbreviations(path: str) -> str:
    """Return the abbreviations of a file on any Beam filesystem, one a line, sorted, each once, without final periods.

    The same abbreviations in another order, with empty lines or with final periods are the same option.

    Args:
        path: a UTF-8 file with one abbreviation a line, such as "bzgl." or "et al."; "" for none.

    Raises:
        SourceError: the file is missing or not UTF-8, or a line is no abbreviation.
    """
    if not path:
        return ""
    try:
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(f"--abbreviations {path} is not UTF-8 text; {_FORM}") from error
    except FileNotFoundError as error:
        raise SourceError(f"--abbreviations {path} does not exist; check the path") from error
    except OSError as error:
        raise SourceError(f"--abbreviations {path} cannot be read ({error}); check the path") from error
    abbreviations = set()
    for number, line in enumerate(lines, start=1):
        abbreviation = normalize_nfc(fold_whitespace(line)).removesuffix(".")
        if not abbreviation:
            continue
        if len(abbreviation) >= MAX_ABBREVIATION_CHARACTERS or not any(map(str.isalpha, abbreviation)):
            raise SourceError(
                f"--abbreviations {path}, line {number}: {abbreviation[:MAX_ABBREVIATION_CHARACTERS]!r} is not an "
                f"abbreviation of a letter or more and fewer than {MAX_ABBREVIATION_CHARACTERS} characters; {_FORM}"
            )
        abbreviations.add(abbreviation)
    if not abbreviations:
        raise SourceError(f"--abbreviations {path} has no abbreviations; {_FORM}")
    return "\n".join(sorted(abbreviations))
