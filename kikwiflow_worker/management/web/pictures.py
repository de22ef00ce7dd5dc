"""Pictures of definitions for pages: drawn off the event loop, and laid out once for each version."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from markupsafe import Markup

from kikwiflow_worker.management.graph.drawing import Drawing
from kikwiflow_worker.management.graph.layout import lay_out
from kikwiflow_worker.management.graph.svg import Marks, draw
from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition

KEPT = 32
"""Drawings that are kept; one of five thousand nodes takes some megabytes."""


class _Drawings:
    """The drawings of the versions that were looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Drawing] = OrderedDict()
        self._lock = Lock()

    def of(self, file: DefinitionFile) -> Drawing:
        if not isinstance(file, ProcessDefinition):
            return lay_out(file)
        with self._lock:
            kept = self._kept.get(file.id)
            if kept is not None:
                self._kept.move_to_end(file.id)
                return kept
        drawing = lay_out(file)
        with self._lock:
            self._kept[file.id] = drawing
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return drawing


_drawings = _Drawings()


async def drawing_of(file: DefinitionFile) -> Drawing:
    """Return the drawing of a definition."""
    return await asyncio.to_thread(_drawings.of, file)


async def picture_of(
    file: DefinitionFile, marks_on: Callable[[Drawing], Marks], *, title: str
) -> Markup:
    """Return the picture of a definition with the marks that ``marks_on`` puts on its drawing."""

    def picture() -> Markup:
        drawing = _drawings.of(file)
        return draw(drawing, marks_on(drawing), title=title)

    return await asyncio.to_thread(picture)
