"""What einsum means, as cases with exact results: the distribution ``einsum-conformance``, which needs no einsumx.

In that distribution, this folder is the package ``einsum_conformance``. So its modules import each other relatively,
and nothing else but NumPy and pytest.
"""
