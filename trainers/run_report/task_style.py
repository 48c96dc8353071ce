"""Define the additional style rules of fine-tuning reports: shades, marks, colors of entity types."""

# Shades of a confusion matrix from light to strong, and colors of entity types, for light and dark mode. Text on them
# has a contrast ratio of at least 4.5.
_RIGHT = (("#e6f2e8", "#cbe6d0", "#a9d6b1", "#84c490"), ("#1d2b21", "#1d3a26", "#1c4a2a", "#1f5a2b"))
_WRONG = (("#fdeee6", "#fbd9c8", "#f8bfa6", "#f2a283"), ("#33231e", "#47271d", "#5e2b1c", "#7a2f1c"))
_TYPES = (
    ("#cfe0f5", "#d9cdf0", "#c9ead0", "#ffe0b0", "#f7cfe0", "#c6e9ec"),
    ("#234a78", "#523a78", "#1f5a2b", "#6a4a00", "#74284f", "#11565c"),
)
SHADES = len(_RIGHT[0])
TYPE_COLORS = len(_TYPES[0])


def _colors(mode: int) -> str:
    groups = {"right": _RIGHT[mode], "wrong": _WRONG[mode], "type": _TYPES[mode]}
    return "".join(f"--{name}-{i}: {color}; " for name, colors in groups.items() for i, color in enumerate(colors))


STYLE = (
    f":root {{ {_colors(0)}--true: #1d6b3a; --predicted: #b0400a; }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_colors(1)}--true: #7fd39a; --predicted: #f09a5f; }} }}\n"
    + "".join(
        f".{name}-{i} {{ background: var(--{name}-{i}); }}\n" for name in ("right", "wrong") for i in range(SHADES)
    )
    + "".join(f"mark.type-{i} {{ background: var(--type-{i}); }}\n" for i in range(TYPE_COLORS))
    + """
.confusion th, .confusion td { padding: .3rem .5rem; text-align: right; border: 1px solid var(--rule); }
.confusion th { max-width: 11rem; overflow-wrap: anywhere; vertical-align: bottom; }
.confusion td:first-child { min-width: 0; }
.confusion thead th { min-width: 3.5rem; }
.confusion tbody th:first-child { text-align: left; min-width: 6rem; }
#published td:last-child { min-width: 12rem; }
.confusion .hit { font-weight: 700; }
.confusion caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
.diagonal { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 3; fill: none; }
.point { fill: var(--bar); opacity: .55; }
.verdict { margin: 0 0 .3rem; }
.verdict b { overflow-wrap: anywhere; }
.true { color: var(--true); }
.predicted { color: var(--predicted); }
mark.true, mark.predicted { color: inherit; background: none; padding: 0 .05rem; border-radius: 0; }
mark.true { background: var(--right-1); border-bottom: 2px solid var(--true); }
mark.predicted { background: var(--wrong-1); border-bottom: 2px dashed var(--predicted); }
mark.true.predicted { background: var(--right-3); border-bottom: 2px double var(--true); }
.entities { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .75rem; margin: .35rem 0 0; }
.entities dt { color: var(--soft); }
.entities dd { margin: 0; min-width: 0; }
mark small { font-weight: 700; margin-left: .2rem; }
.answers { padding-left: 1.4rem; margin: .35rem 0; }
.best td { font-weight: 700; }
td.problem { color: var(--warn); }
"""
)
