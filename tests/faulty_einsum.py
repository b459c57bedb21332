"""An einsum function with a fault, to be judged: it takes no diagonal right, and all else."""

import numpy


def einsum(equation, *operands, **options):
    result = numpy.einsum(equation, *operands, **options)
    return result + result.dtype.type(1) if equation == "ii->i" else result
