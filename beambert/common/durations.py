"""Format durations, the same way in progress lines, cost estimates and recipes."""


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
