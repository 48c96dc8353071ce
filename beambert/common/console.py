"""A console of rich that prints text of files."""

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from beambert.common.terminal import printable_lines, unfiltered


class TextConsole(Console):
    """stdout or stderr with styles and live lines of rich, whose text has no control characters.

    Args:
        stderr: whether to print to stderr rather than stdout.
        options: options of `rich.console.Console`.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(file=unfiltered(sys.stderr if stderr else sys.stdout), highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of an object; those of text without control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))
