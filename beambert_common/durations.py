"""Durations for people, the same in progress lines, cost estimates and recipes."""


def format_duration(seconds: float) -> str:
    """Return a duration in one unit, to two or three digits: "45 s", "2.5 min", "12 min", "3.4 h" or "2.1 days"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.{1 if seconds < 600 else 0}f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
