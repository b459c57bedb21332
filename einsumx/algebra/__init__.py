"""What sums and products mean, where it is not plus and times: semirings, and numbers with exponents.

Each meaning is a value that programs have as ``algebra``. :class:`einsumx.ir.algebra.Algebra` is plus and times, and
the base of the others: :class:`~einsumx.algebra.semiring.SemiringAlgebra` and :class:`~einsumx.algebra.scaled.Scaled`.
"""
