"""A caller's file with every public name, which type checkers know in full. Nothing runs this file."""

# pyright: strict

import numpy as np

import einsumx

A, B = np.ones((2, 3)), np.ones((3, 4))


def contractions() -> None:
    print(einsumx.einsum("ij,jk->ik", A, B), einsumx.einsum(A, [0, 1], B, [1, 2], [0, 2]))
    print(einsumx.addeinsum(A, "ij->ij", A), einsumx.tensordot(A, B, axes=1), einsumx.transpose(A))
    scaled: einsumx.FrexpResult = einsumx.einsum_frexp("ij->i", A)
    print(scaled.mantissa, scaled.exponent)
    max_plus: einsumx.Semiring = einsumx.semirings.max_plus
    largest: einsumx.ArgmaxResult = max_plus.argmax("ij->i", A)
    print(max_plus.einsum("ij->i", A), largest.value, largest.positions)


def plans() -> None:
    path, text = einsumx.einsum_path("ij,jk->ik", A, B)
    print(path, text)
    plan: einsumx.Plan = einsumx.plan("ij,jk->ik", einsumx.Operand((2, 3), "float32"), (3, 4))
    print(plan.equation, plan.operands, plan.path, plan.shape, plan.dtype, plan.backend, plan.device, plan.peak_bytes)
    for op in plan.ops:
        print(op.out, op.sources, op.text)
    plan.draw().save("plan.svg")
    again = einsumx.Plan.from_json(plan.to_json()).retarget("torch")
    print(again(A, B), again.source(), again.draw().svg)
    expression: einsumx.Expression = einsumx.expression("ij,jk->ik", (2, 3), B)
    print(expression(A))
    tuning: einsumx.Tuning = einsumx.tune("ij,jk->ik", A, B)
    print(tuning.plan, tuning.gain, [(tried.plan, tried.seconds, tried.estimated) for tried in tuning.tried])


def memory() -> None:
    amount: einsumx.MemoryAmount = "8GiB"
    limit = einsumx.MemoryLimit(amount, progress=True)
    print(einsumx.einsum("ij,jk->ik", A, B, memory_limit=limit))
    blocks = einsumx.plan("ij,jk->ik", (2, 3), (3, 4), memory_limit=limit)
    print(blocks(A, B), blocks.peak_bytes, blocks.limit, blocks.cuts, blocks.read_bytes, blocks.draw().html)
    print(einsumx.opened_by(np.load, "a.npy", mmap_mode="r"))
    einsumx.set_memory_pool("1 GiB")
    print(einsumx.memory_pool_info().held)


def settings() -> None:
    with einsumx.patched("numpy"), einsumx.effort("measure"):
        print(einsumx.get_effort(), einsumx.get_num_threads())
    einsumx.patch("numpy", memory_limit="1 GB")
    einsumx.unpatch("numpy")
    einsumx.set_effort("estimate")
    einsumx.set_num_threads(2)
    einsumx.freeze()
    print(einsumx.cache_info()["plans"].hits, einsumx.backends())
    einsumx.cache_clear()


def extended(adapter: einsumx.Adapter) -> None:
    traits: einsumx.Traits = adapter.traits("cpu")
    print(traits.max_batch_axes, adapter.name)
    einsumx.register(adapter)


def failed(error: einsumx.EinsumxError) -> str:
    match error:
        case einsumx.EquationError() | einsumx.SublistError() | einsumx.SizeError() | einsumx.AxisError():
            return f"bad input: {error}"
        case einsumx.PathError() | einsumx.BackendError() | einsumx.JournalError() | einsumx.BlockError():
            return f"it does not run: {error}"
        case einsumx.MemoryLimitError():
            return f"it does not fit: {error}"
        case _:
            return str(error)
