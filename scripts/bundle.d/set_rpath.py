#!/usr/bin/env python3
"""usage: set_rpath.py PATH FILE…   makes programs and libraries look for their libraries in PATH (with $ORIGIN) before all other folders.

It overwrites the RUNPATH or RPATH that the linker has written and makes it an RPATH, which also holds for the libraries of libraries. A file without
either is left alone: it inherits the RPATH of the program. Exit code 1: a PATH is longer than what it replaces.
"""

import struct
import sys
from pathlib import Path

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_STRTAB, DT_RPATH, DT_RUNPATH = 0, 5, 15, 29


def set_rpath(path: Path, wanted: bytes) -> str | None:
    """What is wrong, if anything."""
    data = bytearray(path.read_bytes())
    if data[:6] != b"\x7fELF\x02\x01":
        return "is not a 64-bit little-endian ELF file"
    (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    dynamic = next((offset for kind, _, offset, *_ in headers if kind == PT_DYNAMIC), None)
    if dynamic is None:
        return None
    entries: dict[int, tuple[int, int]] = {}  # tag: place and value
    while (entry := struct.unpack_from("<qQ", data, dynamic))[0] != DT_NULL:
        entries.setdefault(entry[0], (dynamic, entry[1]))
        dynamic += 16
    place, value = entries.get(DT_RUNPATH) or entries.get(DT_RPATH) or (0, 0)
    if not place:
        return None
    address = entries[DT_STRTAB][1] + value
    begin = next(address - at + offset for kind, _, offset, at, _, length in headers if kind == PT_LOAD and at <= address < at + length)
    room = data.index(0, begin) - begin
    if len(wanted) > room:
        return f"has room for a run path of {room} bytes, and {wanted.decode()} has {len(wanted)}; build in a folder with a longer name"
    data[begin : begin + room] = wanted.ljust(room, b"\0")
    struct.pack_into("<q", data, place, DT_RPATH)
    path.write_bytes(data)
    return None


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    failed = 0
    for name in sys.argv[2:]:
        if problem := set_rpath(Path(name), sys.argv[1].encode()):
            print(f"set_rpath: {name} {problem}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
