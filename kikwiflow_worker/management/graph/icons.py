"""Small pictures of 20 by 20 that tell the shapes apart; drawn with lines, coloured by the style sheet."""

from collections.abc import Mapping

from markupsafe import Markup

from kikwiflow_worker.management.graph.drawing import Shape

_CLOCK = Markup('<circle cx="10" cy="10" r="7"/><path d="M10 5.500V10L13 12"/>')
_LETTER = Markup('<rect x="3" y="5" width="14" height="10" rx="1"/><path d="M3 6L10 11L17 6"/>')
_BELL = Markup('<path d="M5 14H15L13.500 12V9A3.500 3.500 0 0 0 6.500 9V12ZM9 16.500H11"/>')

ICONS: Mapping[Shape, Markup] = {
    Shape.TASK: Markup(
        '<circle cx="10" cy="10" r="3.500"/><path d="M10 2.500V5M10 15V17.500M2.500 10H5M15 10H17.500'
        'M4.700 4.700L6.500 6.500M13.500 13.500L15.300 15.300M15.300 4.700L13.500 6.500M6.500 13.500L4.700 15.300"/>'
    ),
    Shape.EXTERNAL: Markup('<circle cx="10" cy="6.500" r="3.500"/><path d="M3.500 17.500C3.500 10.500 16.500 10.500 16.500 17.500"/>'),
    Shape.CALL: Markup('<rect x="3" y="3" width="14" height="14" rx="2"/><path d="M10 6.500V13.500M6.500 10H13.500"/>'),
    Shape.DECISION: Markup('<path d="M6 6L14 14M14 6L6 14"/>'),
    Shape.SPLIT: Markup('<path d="M10 4V16M4 10H16"/>'),
    Shape.JOIN: Markup('<path d="M10 5.500V14.500M5.500 10H14.500"/>'),
    Shape.TIMER: _CLOCK,
    Shape.DEADLINE: _CLOCK,
    Shape.REMINDER: _BELL,
    Shape.CATCH: _LETTER,
    Shape.RECALL: _LETTER,
    Shape.THROW: Markup('<path class="solid" d="M3 5H17V15H3Z"/><path class="hollow" d="M3 5.500L10 11L17 5.500"/>'),
    Shape.ERROR: Markup('<path d="M5 16L8 5L12 12L15 4"/>'),
}  # fmt: skip
"""Start and end have none: a thin and a thick ring."""
