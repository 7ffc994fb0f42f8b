"""The tools of an agent, and which group of callers may use which of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from recollect.agent.tools.functions import function_tool
from recollect.agent.tools.tool import Tool
from recollect.errors import InvalidInput

# The group of those who name none.
DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Tools by their names. With `groups`, names that may hold a *, a caller has only what their groups list.

    Whoever names no group is in "default". Without `groups` everyone has everything.
    """

    tools: tuple[Tool, ...] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise InvalidInput(f"there are two tools called {min(duplicates)}; give one another name")

    @classmethod
    def of(
        cls, tools: Iterable[Tool | Callable[..., Any]], groups: Mapping[str, Sequence[str]] | None = None
    ) -> Toolbox:
        """A toolbox of tools, and of functions that become tools."""
        return cls(tuple(each if isinstance(each, Tool) else function_tool(each) for each in tools), groups or {})

    def with_tools(self, more: Iterable[Tool]) -> Toolbox:
        """The same with more tools in it, for the same groups."""
        return Toolbox((*self.tools, *more), self.groups)

    def allowed(self, groups: Sequence[str] = ()) -> Mapping[str, Tool]:
        """The tools that these groups have together; an InvalidInput for a group that there is not."""
        if not self.groups:
            return {tool.name: tool for tool in self.tools}
        if unknown := [group for group in groups if group not in self.groups]:
            raise InvalidInput(f"there is no group {unknown[0]!r} of tools; there are {', '.join(self.groups)}")
        patterns = [name for group in groups or (DEFAULT_GROUP,) for name in self.groups.get(group, ())]
        return {
            tool.name: tool for tool in self.tools if any(fnmatchcase(tool.name, pattern) for pattern in patterns)
        }
