"""How many bytes the collectives of a compiled XLA program deliver to each device."""

import re
from math import prod

BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
    "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip

_COLLECTIVE = re.compile(
    r"= (\([^)]*\)|\S+) (?:all-gather|all-reduce|reduce-scatter|(?:ragged-)?all-to-all|collective-\w+)(?:-start)?\("
)
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def collective_bytes(program: str) -> int:
    """The bytes of the results of all collectives in the text of a compiled program."""
    return sum(
        BYTES[dtype] * prod(map(int, filter(None, shape.split(","))))
        for result in _COLLECTIVE.findall(program)
        for dtype, shape in _ARRAY.findall(result)
    )
