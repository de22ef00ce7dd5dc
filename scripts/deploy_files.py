"""Reading the files in deploy/, and what their checks give."""

import re
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]
Findings = list[str]


class SkippedCheckError(Exception):
    """A check cannot be made here; its text says why."""


def seconds(text: str | int) -> float:
    """Return a length as systemd and compose write it ("35", "35s", "1min 30s", "1m30s") in seconds."""
    units = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    parts = re.findall(r"(\d+)\s*([a-z]*)", str(text))
    if not parts or any(unit not in units for _, unit in parts):
        raise ValueError(f"not a length of time: {text!r}")
    return sum(int(number) * units[unit] for number, unit in parts)


def load(path: Path) -> list[Document]:
    """Return all documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


def parse_unit(text: str) -> dict[str, list[str]]:
    """Return the settings of a unit file by name; a name may occur several times, and no name is in two sections."""
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and line[0] not in "#;[":
            name, _, value = line.partition("=")
            settings.setdefault(name.strip(), []).append(value.strip())
    return settings


def parse_dockerfile(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile as (name, arguments), continuation lines joined, comments dropped."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    pairs = (line.strip().partition(" ") for line in joined.splitlines())
    return [(name.upper(), arguments.strip()) for name, _, arguments in pairs]
