"""The doors of designs and services that people know, and how each refuses before it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.routing import BaseRoute

from recollect.http.auth.shapes import SHAPES, Shape
from recollect.http.doors import agent, mem0_platform, mem0_server, memory, react, sessions
from recollect.http.doors.door import Door
from recollect.http.doors.refusals import Refusal

DOORS: tuple[Door, ...] = (
    memory.router,
    sessions.router,
    react.router,
    agent.router,
    mem0_platform.router,
    mem0_server.router,
)


def door_routes() -> list[BaseRoute]:
    """The routes one by one, so that whoever walks the app's routes sees each of them."""
    return [route for door in DOORS for route in door.routes]


def door_shapes() -> Mapping[str, Shape]:
    """How each door refuses, by how its paths begin."""
    shapes: dict[str, Shape] = {}
    for door in DOORS:
        for route in door.routes:
            path: str = getattr(route, "path", "")
            shapes[path.partition("{")[0]] = _shape(door)
    return shapes


def refusal_shapes() -> Mapping[str, Shape]:
    """How whoever may not ask is told so, by how a path begins."""
    return {**SHAPES, **door_shapes()}


def _shape(door: Door) -> Shape:
    def shape(status: int, kind: str, message: str) -> Mapping[str, Any]:
        return door.shape(Refusal(status=status, message=message, kind=kind))[1]

    return shape
