"""The README's picture of speed: made from the JSON of benchmark runs, and readable."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def speed():
    """The module, which is a script among others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import speed

        yield speed


def run_of(framework, peers, package="numpy"):
    """The JSON form of a run in which einsumx takes a second, and each peer the seconds in its list."""
    (count,) = {len(times) for times in peers.values()}
    rows = [
        {"framework": framework, "seconds": {"einsumx": 1.0, **{peer: times[place] for peer, times in peers.items()}}}
        for place in range(count)
    ]
    return {
        "date": "2026-11-22T21:00:00+00:00",
        "machine": "A processor <& co>",
        "cores": 2,
        "versions": {package: "2.4.6+cpu"},
        "rows": rows,
    }


RUNS = [
    run_of("numpy", {"np.einsum": [4.0, 16.0, 8.0], "opt_einsum": [1.0, 1.05, 0.95]}),
    run_of("mxnet", {"mx.np.einsum": [64.0, 128.0, 256.0], "mx.np.einsum(optimize)": [1.0] * 3}, "mxnet"),
    run_of("torch", {"torch.einsum": [0.5, 0.5, 0.5]}, "torch"),
]


def drawn(speed, runs=RUNS):
    return ElementTree.fromstring(speed.speed_picture(runs, "python benchmarks/speed.py"))


def test_bars_are_geometric_means_in_the_order_of_the_frameworks(speed):
    assert [(bar.framework, bar.peer, bar.mean, bar.verdict, bar.count) for bar in speed.bars(RUNS)] == [
        ("NumPy 2.4.6", "np.einsum", pytest.approx(8), "faster", 3),
        ("NumPy 2.4.6", "opt_einsum", pytest.approx(1, abs=0.01), "tie", 3),
        ("PyTorch 2.4.6", "torch.einsum", pytest.approx(0.5), "slower", 3),
        ("MXNet 2.4.6", "mx.np.einsum", pytest.approx(128), "faster", 3),
    ]


def test_a_peer_counts_on_the_problems_that_it_computed(speed):
    run = run_of("numpy", {"np.einsum": [4.0, 16.0, 8.0]})
    del run["rows"][0]["seconds"]["np.einsum"]
    del run["rows"][1]["seconds"]["einsumx"]
    run["rows"].append({"framework": "numpy", "seconds": {"einsumx": 2.0, "np.einsum": 4.0}})
    (bar,) = speed.bars([run])
    assert (bar.mean, bar.count) == (pytest.approx(4), 2)


def test_everything_is_inside_the_picture_and_no_line_is_too_long(speed):
    root = drawn(speed)
    _, _, width, height = map(float, root.get("viewBox").split())
    assert float(root.get("height")) / float(root.get("width")) == pytest.approx(height / width)
    for text in root.iter(f"{SVG}text"):
        extent = len(text.text) * 5.6  # of small letters; others are short
        start = float(text.get("x")) - {"middle": extent / 2, "end": extent}.get(text.get("text-anchor"), 0)
        assert start >= 0
        assert start + extent <= width
        assert 0 < float(text.get("y")) < height
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", 0)) + float(rect.get("width")) <= width


def test_machine_date_and_command_are_in_the_caption(speed):
    text = " ".join(element.text for element in drawn(speed).iter(f"{SVG}text"))
    assert "A processor <& co>, 2 cores; 2026-11-22; CPU only." in text
    assert "Measured by: python benchmarks/speed.py" in text
    assert "geometric means over 3 contractions" in text
    assert "mx.np.einsum on MXNet 2.4.6 takes 128.00 times as long" in drawn(speed)[0].text


@pytest.mark.long
def test_the_command_merges_runs_and_draws_them(speed, tmp_path):
    files = [tmp_path / f"{place}.json" for place in range(len(RUNS))]
    for file, run in zip(files, RUNS):
        file.write_text(json.dumps(run), encoding="utf-8")
    picture = tmp_path / "speed.svg"
    script = [sys.executable, str(BENCHMARKS / "speed.py"), "--only-draw", "--merge", *map(str, files)]
    subprocess.run([*script, "--svg", str(picture)], check=True)
    assert picture.read_text(encoding="utf-8") == speed.speed_picture(RUNS, "python benchmarks/speed.py")
