"""Structure-aware mutations: a valid file in which one or a few fields are changed, drawn from a seed.

Bytes that are changed at random mostly make files that do not parse. These files do parse, and their values have the
wrong type, size or place.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import struct
from pathlib import Path
from typing import Any

import yaml

# Values as they stand in the text, because not all of them can be made from Python's.
COMMON = [
    "0", "-1", "1", "2", "7", "1.5", "-0.0", "512", "65536", "2147483648", "9223372036854775807", "9223372036854775808",
    "9" * 30, "9" * 400, "1.0e+308", "-1.0e+308", "1.0e-320", "1.0e+999", '"1e999"', '"nan"', '"x"', '""', '"7"',
    '"\\u0000\\u202e"', '"../../x"', "[]", "{}", "[[1]]", "[1, 2, 3]", '["x"]', '{"a": 1}', "null", "true", "false",
    "[" + ", ".join(["1"] * 2000) + "]", "[" * 60 + "]" * 60,
]  # fmt: skip
WORDS = {
    ".json": [*COMMON, "NaN", "Infinity", "-Infinity", "1e999", "1E400", "-" + "9" * 5000],
    ".yaml": [
        *COMMON, ".inf", "-.inf", ".nan", "~", "017", "0o17", "0x" + "f" * 5000, "1:30", "1" + ":59" * 300,
        "1" + ":59" * 300 + ".5", "2001-01-01", "0001-01-01T00:00:00+23:59", "yes", "1_000", "0_", "1e999", "!!int 7",
    ],
    ".csv": [
        "", "nan", "inf", "-inf", "1e999", "1e308", "-1", "0", "x", "9" * 30, "9" * 400, "9" * 5000, '"', '"a,b"',
        "1.5", "validation", "train", "\0", "true", "1_0", "0x7", "../../x.png", "/dev/zero", "-0.0", "٣",
    ],
}  # fmt: skip
TYPES = ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I8", "U8", "BOOL", "C64", "X", "f32"]
BYTES = {"F64": 8, "I64": 8, "C64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}  # of a number; others have 1
FILLED = [b"\xff", b"\x7f", b"\x00", b"\x80", b"\x01"]  # all bits set is NaN in every type of float


def change_structure(content: bytes, name: str, seed: str) -> bytes:
    """A valid file with one to three fields changed; the suffix of ``name`` gives its format."""
    draw = random.Random(seed)
    suffix = Path(name).suffix
    if suffix == ".safetensors":
        return _change_tensors(content, draw)
    if suffix == ".csv":
        return _change_table(content.decode(), draw).encode()
    value = yaml.safe_load(content) if suffix == ".yaml" else json.loads(content)
    dump = yaml.safe_dump if suffix == ".yaml" and draw.random() < 0.7 else json.dumps
    return _change_tree(value, WORDS[suffix], dump, draw).encode()


def has_structure(name: str) -> bool:
    """Whether files of this name can be changed by their structure."""
    return Path(name).suffix in (".safetensors", *WORDS)


def _places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in nested mappings and lists."""
    found = [above] if above else []
    if isinstance(value, dict):
        return found + [each for key in value for each in _places(value[key], (*above, key))]
    if isinstance(value, list):
        return found + [each for index, part in enumerate(value) for each in _places(part, (*above, index))]
    return found


def _change_tree(value: Any, words: list[str], dump: Any, draw: random.Random) -> str:
    """Values replaced; keys dropped, renamed or given twice; parts put in the place of others."""
    written = dict[str, str]()  # what stands in the text for a placeholder
    if draw.random() < 0.05:
        return draw.choice(words)
    for number in range(draw.choice([1, 1, 1, 2, 3])):
        places = _places(value)
        if not places:
            break
        *path, last = draw.choice(places)
        holder = value
        for part in path:
            holder = holder[part]
        kind = draw.randrange(10)
        if kind == 0:
            del holder[last]
        elif kind == 1 and isinstance(holder, dict):
            holder[draw.choice([f"{last}x", "", "__class__", "a" * 500, str(draw.choice(places)[-1])])] = holder.pop(
                last
            )
        elif kind == 2 and isinstance(holder, list):
            holder += holder[:2] * draw.choice([1, 1, 300])
        elif kind == 3:
            holder[last] = draw.choice([[holder[last]], {"a": holder[last]}, str(holder[last]), holder[last]])
        elif kind == 4 and isinstance(holder, dict):  # the same key a second time
            written[f'"@key{number}@": '] = f'{json.dumps(str(last))}: {draw.choice(words)}, "@key{number}@": '
            holder[f"@key{number}@"] = 0
        else:
            written[f"@word{number}@"] = draw.choice(words)
            holder[last] = f"@word{number}@"
    text: str = dump(value)
    for placeholder, word in written.items():
        for quoted in (f'"{placeholder}"', f"'{placeholder}'"):
            text = text.replace(quoted, word)
        text = text.replace(placeholder, word)
    return text


def _change_table(text: str, draw: random.Random) -> str:
    """Cells replaced; rows and columns dropped, given twice or exchanged."""
    rows = [list(row) for row in csv.reader(io.StringIO(text))]
    for _ in range(draw.choice([1, 1, 2, 4])):
        row = draw.randrange(len(rows)) if rows else 0
        column = draw.randrange(len(rows[row])) if rows and rows[row] else 0
        kind = draw.randrange(8)
        if not rows or not rows[row]:
            break
        if kind == 0:
            del rows[row]
        elif kind == 1:
            rows = [[*each[:column], *each[column + 1 :]] for each in rows]
        elif kind == 2:
            rows.insert(row, list(draw.choice(rows)))
        elif kind == 3:
            rows[row].insert(column, draw.choice(WORDS[".csv"]))
        else:
            rows[row][column] = draw.choice(WORDS[".csv"])
    return "\n".join(",".join(row) for row in rows) + draw.choice(["\n", "\n", "", "\r\n"])


def _change_tensors(content: bytes, draw: random.Random) -> bytes:
    """The header changed as any JSON, or a tensor changed so that type, shape, offsets and bytes still agree."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    if draw.random() < 0.5:
        words = [*WORDS[".json"], *(json.dumps(each) for each in TYPES), "[0, 4]", "[4, 0]", "[-4, 0]", "[0, 1e999]"]
        text = _change_tree(header, words, json.dumps, draw).encode()
        return struct.pack("<Q", len(text)) + text + data
    parts = {
        name: [entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]]
        for name, entry in header.items()
        if name != "__metadata__"
    }
    for _ in range(draw.choice([1, 1, 2])):
        name = draw.choice(list(parts))
        kind, part = draw.randrange(6), parts[name]
        if kind == 0:
            part[0] = draw.choice(TYPES[:12])
        elif kind == 1:
            part[1] = draw.choice([[], [0], [1], [*part[1], 1], part[1][:-1], part[1][::-1], [1 << 10] * 2, [1] * 70])
        elif kind == 2:
            parts[draw.choice([f"{name}x", "", "model.", "optimizer.0.", "__metadata_", "a" * 500])] = parts.pop(name)
        elif kind == 3:
            parts[f"{name}{draw.choice(['x', '.', '.0'])}"] = list(part)
        elif kind == 4 and len(parts) > 1:
            del parts[name]
        else:  # NaN, infinity, denormals
            part[2] = draw.choice([*FILLED, struct.pack("<f", math.inf)]) * (len(part[2]) or 1)
    metadata = {key: header[key] for key in ("__metadata__",) if key in header}
    if metadata and "progress" in metadata["__metadata__"] and draw.random() < 0.3:
        progress = json.loads(metadata["__metadata__"]["progress"])
        metadata["__metadata__"]["progress"] = _change_tree(progress, WORDS[".json"], json.dumps, draw)
    return _pack(parts, metadata)


def _pack(parts: dict[str, list[Any]], header: dict[str, Any]) -> bytes:
    """A safetensors file of these tensors, each with as many bytes as its type and shape need."""
    body = b""
    for name, (kind, shape, data) in parts.items():
        size = math.prod(shape) * BYTES.get(kind, 1)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + size]}
        body += (data * (size // (len(data) or 1) + 1))[:size] if data else bytes(size)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body
