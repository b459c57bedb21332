"""docs/coming-from/pyscf.md: the configuration makes PySCF run einsumx, and energies stay the same."""

import json
import re
from pathlib import Path

import pytest
from processes import ended

pytest.importorskip("pyscf")
h5py = pytest.importorskip("h5py")

TEXT = (Path(__file__).parents[1] / "docs" / "coming-from" / "pyscf.md").read_text(encoding="utf-8")
CONFIGURATION = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0]

ENERGIES = """
import json, sys
from pyscf import ao2mo, cc, fci, gto, lib, mp, scf
from pyscf.cc import rccsd

{configuration}
calls = []
if "einsumx" in sys.modules:
    ours = numpy_helper.pytblis.einsum
    def noted(*operands, **options):
        calls.append(operands[0])
        return ours(*operands, **options)
    numpy_helper.pytblis = SimpleNamespace(einsum=noted, contract=noted)

molecule = gto.M(atom="O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587", basis="sto-3g", verbose=0)
field = scf.RHF(molecule).run(conv_tol=1e-12)
coupled = rccsd.RCCSD(field).run(conv_tol=1e-10)
energies = [
    mp.MP2(field).run().e_tot, coupled.e_tot, cc.GCCSD(field.to_ghf()).run(conv_tol=1e-10).e_tot,
    *coupled.ipccsd(nroots=2)[0], fci.FCI(field).run().e_tot,
]
print(json.dumps([list(map(float, energies)), len(calls)]))
"""

FACTORS = """
import h5py
import numpy as np
from pyscf import lib

{configuration}
rng = np.random.default_rng(0)
a, b, c = rng.random((30, 40)), rng.random((40, 50)), rng.random((30, 50))
with h5py.File("file.h5", "w") as file:
    for lhs in (a, file.create_dataset("a", data=a)):
        out = c.copy()
        assert lib.contract("ij,jk->ik", lhs, b, alpha=-0.5, beta=2, out=out) is out
        np.testing.assert_allclose(out, 2 * c - 0.5 * a @ b)
        np.testing.assert_allclose(lib.einsum("ij,jk->ik", lhs, b, out=None), a @ b)
        np.testing.assert_allclose(lib.einsum("ij,jk,lk->il", lhs, b, c, optimize=True), a @ b @ c.T)
        np.testing.assert_allclose(lib.einsum("ij->j", lhs), a.sum(0))
"""


def run(program: str, folder: Path, **values: str) -> str:
    """The output of a program in a new process."""
    done = ended("-c", program.format(**values), folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_configuration_has_at_most_twenty_lines() -> None:
    assert len(CONFIGURATION.splitlines()) <= 20
    assert "from einsumx.interop.pyscf import contract" in CONFIGURATION


def test_energies_are_those_of_pyscfs_own_einsum(tmp_path: Path) -> None:
    own, none = json.loads(run(ENERGIES, tmp_path, configuration=""))
    found, calls = json.loads(run(ENERGIES, tmp_path, configuration=CONFIGURATION))
    assert none == 0
    assert calls > 500
    assert len(found) == len(own)
    assert found == pytest.approx(own, rel=0, abs=1e-8)
    assert found[:3] == pytest.approx(own[:3], rel=0, abs=1e-10)


def test_factors_and_datasets_reach_einsumx(tmp_path: Path) -> None:
    run(FACTORS, tmp_path, configuration=CONFIGURATION)
