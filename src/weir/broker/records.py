"""Packed records that outlive the program which wrote them: each says its version in its first byte.

A later version only adds fields at the end, and they are 0 in an older record. So a program reads every
older record by filling it up, and writes it back in its own version when it next changes it. A record of a
newer version is refused: nothing is changed, and the caller is told to start a newer Weir.

Version 0 was written before there were versions. Such a record has no byte for its version, and its first
byte is always smaller than `MARK`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from struct import Struct

MARK = 128
"""The first byte of a record is this plus its version."""
PYTHON_CODES = {"I1": "B", "I2": "H", "I4": "I", "I8": "Q", "c16": "16s"}


def python_struct(layout: str) -> Struct:
    """The same layout for Python that scripts spell in Lua."""
    for lua, python in PYTHON_CODES.items():
        layout = layout.replace(lua, python)
    return Struct(layout)


def lua_size(layout: str) -> int:
    """The size in bytes of a layout that only scripts read: integers of any width."""
    return sum(int(width) for width in re.findall(r"I(\d+)", layout))


@dataclass(frozen=True, kw_only=True)
class Record:
    """One packed record: its name, and for each version the fields (name and code) that it added."""

    name: str
    added: tuple[tuple[tuple[str, str], ...], ...]

    @property
    def version(self) -> int:
        return len(self.added) - 1

    @property
    def mark(self) -> int:
        return MARK + self.version

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return tuple(name for fields in self.added for name, _ in fields)

    @cached_property
    def layout(self) -> str:
        """Version and fields, as scripts spell it; most significant byte first."""
        return ">I1" + "".join(code for fields in self.added for _, code in fields)

    @cached_property
    def struct(self) -> Struct:
        return python_struct(self.layout)

    def sizes(self) -> list[int]:
        """How many bytes the fields of each version take, without the byte for the version."""
        found, layout = [], ">"
        for fields in self.added:
            layout += "".join(code for _, code in fields)
            found.append(python_struct(layout).size)
        return found

    def pack(self, **values: int) -> bytes:
        return self.struct.pack(self.mark, *(values[name] for name in self.fields))

    def lua_block(self) -> str:
        """Its layout and mark as constants, and the functions that pack it, unpack it into a table and bring
        one of an older program to this version."""
        low = self.name.lower()
        sizes = ", ".join(f"[{version}] = {size}" for version, size in enumerate(self.sizes()))
        values = ", ".join(f"record.{name}" for name in self.fields)
        return f"""
--- include "filled_up"
local {self.name}, {self.name}_MARK, {self.name}_SIZE = '{self.layout}', {self.mark}, {self.struct.size}
local function current_{low}(packed)
  if string.byte(packed) == {self.mark} and #packed >= {self.struct.size} then return packed end
  return filled_up(packed, '{low}', {self.version}, {{{sizes}}})
end
local function pack_{low}(record)
  return struct.pack({self.name}, {self.mark}, {values})
end
local function unpack_{low}(record, packed)
  local _
  _, {values} = struct.unpack({self.name}, current_{low}(packed))
end
"""
