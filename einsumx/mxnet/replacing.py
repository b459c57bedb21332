"""``replace_einsum``: MXNet's einsum functions become einsumx's, under the names that everybody calls them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial, wraps
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from warnings import warn

from einsumx.api import einsum
from einsumx.errors import EinsumxError
from einsumx.mxnet.importing import load
from einsumx.mxnet.tracing import UnknownRankError, with_known_inputs

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Replacement", "replace_einsum"]

Function: TypeAlias = Callable[..., Any]

_EVERYWHERE = 0
"""In the place of a thread's number, which is never 0: all threads."""


class _Place(NamedTuple):
    """A name in MXNet, and what can stand under it.

    Attributes:
        owner, name: the module or class, and the attribute of it.
        native: what was there.
        ours: what replaces it.
        chosen: calls ``ours`` in the threads that asked for it, and ``native`` in the others.
    """

    owner: Any
    name: str
    native: Function
    ours: Function
    chosen: Function


_lock = RLock()
_held: dict[int, int] = {}
"""How many replacements hold in each thread, by its number, and everywhere."""
_places: list[_Place] = []
"""Found when the first replacement begins to hold, forgotten when the last has ended."""


class Replacement:
    """What :func:`replace_einsum` returns: undoes it, at the end of a ``with`` block or when told to."""

    def __init__(self) -> None:
        self._where: int | None = _EVERYWHERE
        with _lock:
            _hold(_EVERYWHERE)

    def undo(self) -> None:
        """End this replacement; MXNet has its own functions back when every other has ended too."""
        with _lock:
            where, self._where = self._where, None
            if where is not None:
                _release(where)

    def __enter__(self) -> Self:
        with _lock:
            if self._where != _EVERYWHERE:
                raise RuntimeError("this replacement was entered or undone before; call replace_einsum() again")
            self._where = get_ident()
            _hold(self._where)
            _release(_EVERYWHERE)
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def replace_einsum() -> Replacement:
    """From now on ``mx.np.einsum`` is einsumx, in code that stays as it is.

    So is all that ends there: names bound earlier (``from mxnet.np import einsum``), and ``numpy.einsum`` of MXNet's
    arrays. It takes what ``mx.np.einsum`` takes, and what :func:`einsumx.einsum` takes beyond that. ``optimize=`` True
    and False both mean ``"auto"``, as they only tell MXNet whether it may use tensordot. Errors are einsumx's, and
    ``mx.base.MXNetError`` too.

    The plain call holds in all threads until ``undo()`` of what it returns. ``with replace_einsum():`` holds in that
    block, for the thread that entered it. Replacements nest, in any order; when the last has ended, MXNet has the very
    functions back that it had.

    Raises:
        BackendError: MXNet cannot be imported.

    >>> from einsumx.mxnet import replace_einsum
    >>> replaced = replace_einsum()  # doctest: +SKIP
    >>> replaced.undo()  # doctest: +SKIP
    """
    load()
    return Replacement()


def _hold(where: int) -> None:
    if not _held:
        _places.extend(_found())
    _held[where] = _held.get(where, 0) + 1
    _put()


def _release(where: int) -> None:
    _held[where] -= 1
    if not _held[where]:
        del _held[where]
    _put()
    if not _held:
        _places.clear()


def _put() -> None:
    """Put under each name what belongs there now."""
    for place in _places:
        function = place.ours if _EVERYWHERE in _held else place.chosen if _held else place.native
        setattr(place.owner, place.name, function)


def _found() -> Iterator[_Place]:
    """The names under which MXNet calls its einsum functions, with what is there now."""
    mx = load()

    def place(owner: Any, name: str, ours: Callable[[Function], Function]) -> _Place:
        native = getattr(owner, name)
        return _Place(owner, name, native, replacing := ours(native), _chosen(native, replacing))

    yield place(mx.nd.np, "einsum", partial(_replacing, operand=mx.np.ndarray))
    if mx.__version__.startswith("1."):  # MXNet 2 traces blocks with arrays
        yield place(mx.sym.np, "einsum", partial(_replacing, operand=mx.sym.np._Symbol))
        yield place(mx.gluon.HybridBlock, "_get_graph", with_known_inputs)


def _chosen(native: Function, ours: Function) -> Function:
    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        return ours(*operands, **options) if get_ident() in _held else native(*operands, **options)

    return function


def _replacing(native: Function, operand: type) -> Function:
    """What replaces one of MXNet's functions, whose operands are of the type ``operand``, by einsumx."""
    from einsumx.mxnet.errors import as_mxnet_error

    @wraps(native)
    def function(*operands: Any, **options: Any) -> Any:
        try:
            # Where the last operand is MXNet's, the others have to be: nothing needs to be asked of einsumx.
            if options or not operands or not isinstance(operands[-1], operand):
                return einsum(*operands, **_asked(options))
            return einsum(*operands)
        except UnknownRankError as error:
            if not isinstance(operands[0], str) or not set(options) <= {"optimize", "out"}:
                raise as_mxnet_error(error) from None
            _say_native(operands[0])
            return native(*operands, **options)
        except EinsumxError as error:
            raise as_mxnet_error(error) from error.__cause__

    return function


@lru_cache(maxsize=1024)
def _say_native(equation: str) -> None:
    """Warn, once an equation, that MXNet's own einsum is used."""
    warn(
        f"MXNet's own, slow einsum is recorded for {equation!r}: how many axes the ellipsis stands for is not known of "
        "symbols without shapes; write labels in its place, or declare the variable's shape",
        stacklevel=4,
    )


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """What MXNet's keywords ask of einsumx: operands are or become MXNet's arrays; its bools ask for no path."""
    asked = {"backend": "mxnet", **options}
    if asked.get("optimize") in (True, False):
        del asked["optimize"]
    return asked
