"""What the project says of speed: made from the times of one run, and the same everywhere."""

import json
import re
from importlib import import_module
from pathlib import Path
from statistics import geometric_mean
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

pytest.importorskip("rich")

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def scripts():
    """The modules, which are scripts among others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield SimpleNamespace(**{name: import_module(name) for name in ("picture", "results", "speed")})


def rows_of(framework, peers, groups=("chemistry", "one operand", "one operand")):
    """Rows in which einsumx takes a second, and each peer the seconds in its list."""
    return [
        {
            "framework": framework,
            "group": group,
            "equation": "ij,jk->ik",
            "shapes": [[2, 3], [3, 4]],
            "dtype": "float32",
            "layouts": [],
            "seconds": {"einsumx": 1.0, **{peer: times[place] for peer, times in peers.items()}},
        }
        for place, group in enumerate(groups)
    ]


def part_of(framework, backend, peers, busy=()):
    """The data of one framework."""
    run = {
        "framework": framework,
        "date": "2026-11-22T21:00:00+00:00",
        "machine": "A processor <& co>",
        "cores": 2,
        "versions": {backend: "2.4.6+cpu"},
        "seed": 5,
        "busy": list(busy),
    }
    compared = {
        "backend": backend,
        "version": "2.4.6",
        "equation": "bnid,bnjd->bnij",
        "native_seconds": 2.0,
        "einsumx_seconds": 0.5,
        "verdict": "faster",
        "error_per_bound": 0.006,
    }
    return {"runs": [run], "compare": [compared], "rows": rows_of(framework, peers)}


NUMPY = part_of("numpy", "numpy", {"np.einsum": [4.0, 0.5, 0.25], "opt_einsum": [1.0, 1.05, 0.95]})
MXNET = part_of("mxnet", "mxnet", {"mx.np.einsum": [64.0, 128.0, 256.0], "mx.np.einsum(optimize)": [2.0] * 3}, ["busy"])
TORCH = part_of("torch", "torch", {"torch.einsum": [0.5, 0.5, 0.5]})


@pytest.fixture
def data(scripts):
    return scripts.results.combined([MXNET, NUMPY, TORCH])


# -- the picture --------------------------------------------------------------------------------------------------


def drawn(scripts, data):
    return ElementTree.fromstring(scripts.picture.speed_picture(data["rows"], ["On 2 cores of a processor <& co>."]))


def test_bars_are_geometric_means_in_the_order_of_the_frameworks(scripts, data):
    bars = scripts.picture.bars(data["rows"])
    assert [(bar.framework, bar.peer, round(bar.mean, 2), bar.verdict, bar.count) for bar in bars] == [
        ("NumPy", "np.einsum", 0.79, "slower", 3),
        ("NumPy", "opt_einsum", 1.0, "tie", 3),
        ("NumPy", "fastest other einsum", 0.5, "slower", 3),
        ("PyTorch", "torch.einsum", 0.5, "slower", 3),
        ("PyTorch", "fastest other einsum", 0.5, "slower", 3),
        ("MXNet", "mx.np.einsum", 128.0, "faster", 3),
    ]


def test_a_peer_counts_on_the_problems_that_it_computed(scripts):
    rows = rows_of("numpy", {"np.einsum": [4.0, 16.0, 8.0]})
    del rows[0]["seconds"]["np.einsum"]
    del rows[1]["seconds"]["einsumx"]
    rows += [{"framework": "numpy", "seconds": {"einsumx": 2.0, "np.einsum": 4.0}}]
    bar, _ = scripts.picture.bars(rows)
    assert (bar.mean, bar.count) == (pytest.approx(4), 2)


def test_everything_is_inside_the_picture_and_no_line_is_too_long(scripts, data):
    recorded = json.loads(scripts.results.DATA.read_text(encoding="utf-8"))
    for picture in (drawn(scripts, data), drawn(scripts, recorded)):
        _, _, width, height = map(float, picture.get("viewBox").split())
        assert float(picture.get("height")) / float(picture.get("width")) == pytest.approx(height / width)
        for text in picture.iter(f"{SVG}text"):
            extent = len(text.text) * 5.6  # of small letters; others are short
            start = float(text.get("x")) - {"middle": extent / 2, "end": extent}.get(text.get("text-anchor"), 0)
            assert start >= 0
            assert start + extent <= width
            assert 0 < float(text.get("y")) < height
        for rect in picture.iter(f"{SVG}rect"):
            assert float(rect.get("x", 0)) + float(rect.get("width")) <= width


def test_the_caption_and_a_sentence_for_each_bar_are_in_the_picture(scripts, data):
    picture = drawn(scripts, data)
    assert "On 2 cores of a processor <& co>." in " ".join(text.text for text in picture.iter(f"{SVG}text"))
    assert "mx.np.einsum on MXNet takes 128.00 times as long" in picture[0].text


# -- the pages ----------------------------------------------------------------------------------------------------


def test_the_readme_says_what_is_slower_beside_what_is_faster(scripts, data):
    text = scripts.results._readme(data)
    assert "geometric means over 3 contractions" in text
    assert text.splitlines()[-3:] == [
        "| NumPy | `np.einsum` 0.79 | 0.50 | 67 % | one operand |",
        "| PyTorch | `torch.einsum` 0.50 | 0.50 | 100 % | chemistry, one operand |",
        "| MXNet | `mx.np.einsum` 128 | 2.00 | 0 % |  |",
    ]


def test_a_class_has_its_mean_and_the_number_of_problems_that_are_slower(scripts, data):
    (row,) = [line for line in scripts.results._result(data).split("\n") if line.startswith("| one operand")]
    assert row == "| one operand | 0.35 (2 of 2) | 0.50 (2 of 2) | 2.00 (0 of 2) |"


def test_problems_that_are_slower_are_all_listed_worst_first(scripts, data):
    details = scripts.results._details(data).partition("## PyTorch")[0]
    assert re.findall(r"\| 1.00 s \| (.*) \|", details) == ["250 ms np.einsum | 0.25", "500 ms np.einsum | 0.50"]


def test_a_busy_machine_is_named(scripts, data):
    assert "Other programs disturbed the times of MXNet." in scripts.results._recorded(data)
    assert "disturbed" not in scripts.results._recorded(scripts.results.combined([NUMPY]))


def test_the_data_are_the_same_when_they_are_read(scripts, data):
    assert json.loads(scripts.speed.text_of(data)) == data


def test_all_that_is_said_of_speed_is_made_from_the_same_data(scripts):
    data = json.loads(scripts.results.DATA.read_text(encoding="utf-8"))
    for path, text in scripts.results.written(data).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} differs from what speed.json says"


def test_the_readme_s_ratios_are_the_means_of_the_recorded_times():
    rows = json.loads((ROOT / "docs/benchmarks/speed.json").read_text(encoding="utf-8"))["rows"]
    named = re.findall(r"\| `([\w.]+einsum)` ([\d.]+) \|", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [name for name, _ in named] == ["np.einsum", "torch.einsum", "jnp.einsum", "mx.np.einsum"]
    for name, ratio in named:
        times = [row["seconds"] for row in rows if {name, "einsumx"} <= row["seconds"].keys()]
        mean = geometric_mean(each[name] / each["einsumx"] for each in times)
        assert float(ratio) == pytest.approx(mean, rel=0.005)


def test_pages_state_no_other_range_of_mxnets_slowness_than_its_own_page():
    def ranges(path):
        paragraphs = [part for part in path.read_text(encoding="utf-8").split("\n\n") if "mx.np.einsum" in part]
        return {found for part in paragraphs for found in re.findall(r"(\d+ to \d+)\]?\S*\s+times", part)}

    (stated,) = ranges(ROOT / "docs/mxnet.md")
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert ranges(path) <= {stated}, path.name
