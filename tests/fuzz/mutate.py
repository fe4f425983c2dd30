"""Random mutations of bytes, determined by a seed."""

from __future__ import annotations

import random
import struct

EXTREMES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1]
# What a text reader may stumble over.
WORDS = [
    "!!python/object/apply:os.system ['true']", "!!int ''", "!!bool x", "&a [*a]", "*a", "<<: *a", "9" * 5000, "-1e999",
    "1e999", "nan", "NaN", "Infinity", "null", "[" * 2000, "{" * 2000, "\0", "\ufeff", "\u202e", "0x_", "0b_",
    "2020-13-45", "../../etc/passwd", "/dev/zero", '"', "'", "\n", "\r", ",", ":", "- ", "? ", "\t", "x" * 200_000,
    "1:99:99", "~", "{}", "[]", "true", "-", "{" + '"a":' * 500, "%TAG ! !!", "--- ", "... ", "|", ">", "@", "`",
]  # fmt: skip


def damage(content: bytes, others: list[bytes], seed: str, *, text: bool) -> bytes:
    """One to six changes: bytes and numbers replaced, parts cut, doubled, or taken from another file."""
    draw = random.Random(seed)
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 6])):
        # Headers decide most, so they are hit as often as all the rest.
        end = len(data) if draw.random() < 0.5 else min(len(data), 260)
        place = draw.randrange(end) if end else 0
        kind = draw.randrange(8 if text else 7)
        if kind == 0:
            data[place : place + 1] = bytes([draw.randrange(256)])
        elif kind == 1 and data:
            data[place % len(data)] ^= 1 << draw.randrange(8)
        elif kind == 2:
            width, order = draw.choice([1, 2, 4, 8]), draw.choice("<>")
            number = draw.choice(EXTREMES) & ((1 << 8 * width) - 1)
            data[place : place + width] = struct.pack(order + {1: "B", 2: "H", 4: "I", 8: "Q"}[width], number)
        elif kind == 3:
            data[place : len(data) if draw.random() < 0.3 else place + draw.randrange(1, 40)] = b""
        elif kind == 4:
            data[place:place] = data[place : place + draw.randrange(1, 200)]
        elif kind == 5:
            other = draw.choice(others)
            start = draw.randrange(len(other)) if other else 0
            data[place : place + draw.randrange(60)] = other[start : start + draw.randrange(1, 300)]
        elif kind == 6:
            data[place:place] = draw.randbytes(draw.randrange(1, 20))
        else:
            data[place : place + draw.randrange(12)] = draw.choice(WORDS).encode()
    return bytes(data)
