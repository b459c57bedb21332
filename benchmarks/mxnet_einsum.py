"""Time MXNet's own einsum, einsumx as its replacement, and hand-written lines, forward and with gradients.

Under `patched("mxnet")`, the call `mx.np.einsum` runs einsumx. Results and gradients are checked before they are timed.
A call ends when its results are complete. Tiny calls end when they return, as waiting for MXNet's threads takes longer
than their work. Nothing is asserted about times.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from contenders import Framework, Function
from measure import Row, measure, prepare
from names import EINSUMX, HAND_WRITTEN
from problems import Problem, sized
from show import console, data, print_tables
from summary import Table

import einsumx
from einsumx.adapters.typing import Array
from einsumx.errors import counted
from einsumx.ir.text import duration
from einsumx.mxnet import load

NATIVE = "mx.np.einsum"

TINY = (
    ("ij,jk->ik", {"i": 2, "j": 3, "k": 4}),
    ("bij,bjk->bik", {"b": 2, "i": 2, "j": 3, "k": 4}),
    ("bnid,bnjd->bnij", {"b": 2, "n": 2, "i": 3, "j": 2, "d": 4}),
    ("ij,jk,kl->il", {"i": 2, "j": 3, "k": 4, "l": 5}),
    ("ij,ij->ij", {"i": 2, "j": 3}),
    ("i,i->", {"i": 5}),
    ("ij->ji", {"i": 2, "j": 3}),
    ("ij->i", {"i": 2, "j": 3}),
    ("ii->", {"i": 3}),
)
"""Calls that compute next to nothing."""

FORWARD = ("ij->i", "ii->")
"""Equations whose gradients are no contractions, so that the reference cannot compute them."""

REPORTED = ("bnid,bnjd->bnij", "bind,bjnd->bnij", "bind,jnd->bnij")
"""Contractions that users reported as slow."""

ATTENTION = (
    "bnij,bnjc->binc",
    "binc,bjnc->bnij",
    "ibnc,jbnc->bnij",
    "bnij,jbnc->ibnc",
    "bnid,jnd->ijbn",
    "bind,jnd->ijbn",
    "ibnd,jnd->ijbn",
)
"""Those of GluonNLP's attention cells."""

GROUPS = ("tiny", "reported", "attention")

SIZES = {"n": 8, "i": 100, "j": 50, "c": 128, "d": 128}
"""Heads, query positions, key positions, and units per head."""


@dataclass(frozen=True)
class Replaced(Framework):
    """MXNet while its einsum is replaced.

    Attributes:
        kernel: the MXNet function that the original ``mx.np.einsum`` calls.
    """

    kernel: Function = field(kw_only=True)

    def functions(self, problem: Problem) -> dict[str, Function]:
        """The replaced function, the original one, and the hand-written line if there is one."""

        def native(*operands: Array, **options: Any) -> Array:  # as mx.np.einsum does it
            return self.kernel(*operands, **options)

        written = {name: line for name, line in super().functions(problem).items() if name == HAND_WRITTEN}
        return {EINSUMX: self.adapter.xp.einsum, NATIVE: native, **written}


def main() -> None:
    """Measure and print a table."""
    parser = ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--batch", type=int, default=8, metavar="N", help="batch size of the attention problems (default: 8)")
    add("--group", nargs="+", choices=GROUPS, default=list(GROUPS), help="some of the problems")
    add("--filter", default="", metavar="TEXT", help="only equations that contain TEXT")
    add("--seconds", type=float, default=0.5, help="time for each row of the table (default: 0.5)")
    add("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    mx = load()
    framework = Replaced("mxnet", "mxnet", {}, waits=True, kernel=mx.nd.np.einsum)
    framework.start()
    with einsumx.patched("mxnet"):
        rows = list(_measured(framework, options.group, options.batch, options.filter, options.seconds))
    if not rows:
        parser.error("no equation of these groups matches")
    about = data(rows)
    settings = "".join(f", {name}={value}" for name, value in about["environment"].items())
    title = f"MXNet {mx.__version__} on {about['machine']}, {counted(about['cores'], 'core')}{settings}"
    columns = ("problem", "", NATIVE, "einsumx", "by hand", "native / einsumx", "by hand / einsumx")
    table = Table(title, columns, [_cells(row) for row in rows])
    if options.markdown:
        console.print(table.markdown(), soft_wrap=True)
    else:
        print_tables([table])


def _measured(framework: Framework, groups: Iterable[str], batch: int, text: str, seconds: float) -> Iterator[Row]:
    """Each contraction, forward and then with its gradients."""
    hasty, attention = replace(framework, waits=False), {**SIZES, "b": batch}
    groups_of = {
        "tiny": [(hasty, equation, sizes) for equation, sizes in TINY],
        "reported": [(framework, equation, attention) for equation in REPORTED],
        "attention": [(framework, equation, attention) for equation in ATTENTION],
    }
    for timed, equation, sizes in chain.from_iterable(groups_of[group] for group in groups):
        for gradient in (False, True)[: 1 if equation in FORWARD else 2]:
            problem = sized("mxnet", equation, sizes, gradient=gradient)
            if text in equation:
                with console.status(str(problem)):
                    row = measure(timed, prepare(problem), seconds)
                if row is not None:
                    yield row


def _cells(row: Row) -> tuple[str, ...]:
    names = (NATIVE, EINSUMX, HAND_WRITTEN)
    times = [duration(row.seconds[name]) if name in row.seconds else row.notes.get(name, "")[:5] for name in names]
    ratios = [f"{ratio:.3g}" if ratio else "" for ratio in (row.ratio, row.by_hand)]
    return (str(row.problem), "with gradients" if row.problem.gradient else "forward", *times, *ratios)


if __name__ == "__main__":
    main()
