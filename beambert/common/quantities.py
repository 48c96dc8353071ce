"""Format numbers with their nouns, and durations."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 file", "3 files", "2 copies" with the plural "copies"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Return a duration as "45 s", "1 min 46 s", "12 min", "3.4 h" or "2.1 days"."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
