"""Pictures of plans: that they are well-formed, complete, legible, and safe whatever a plan says."""

import random
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import chain, combinations, product
from xml.etree import ElementTree

import pytest
from functions_entered import entered

import einsumx
from einsumx import plan
from einsumx.cli.main import main
from einsumx.ir.operand import Operand
from einsumx.ir.ops import Copy
from einsumx.ir.parse import symbol
from einsumx.render.drawing import _COLOURS

SVG = "{http://www.w3.org/2000/svg}"

BLOCKED = [
    ("ij,jk->ik", [(900, 800), (800, 900)], "9 MB", True),
    ("ij,jk->ik", [(90, 80), (80, 90)], "900 MB", False),
    ("pi,qj,rk,sl,ijkl->pqrs", [(30, 30)] * 4 + [(30,) * 4], "9 MB", True),
    ("ij->ji", [(1000, 1000)], "9 MB", True),
]


def network(count, seed):
    """A connected network of ``count`` tensors with some more bonds and some open legs, as equation and shapes."""
    chance = random.Random(seed)
    terms = [[] for _ in range(count)]
    bonds = [(number, chance.randrange(max(0, number - 5), number)) for number in range(1, count)]
    bonds += [chance.sample(range(count), 2) for _ in range(count // 3)]
    for label, ends in enumerate(bonds):
        for end in ends:
            terms[end].append(label)
    terms[0].append(len(bonds))
    terms[-1].append(len(bonds) + 1)
    written = ["".join(map(symbol, term)) for term in terms]
    equation = f"{','.join(written)}->{symbol(len(bonds))}{symbol(len(bonds) + 1)}"
    return equation, [(2,) * len(term) for term in terms]


def blocked(case):
    equation, shapes, limit, stored = case
    return plan(equation, *shapes, memory_limit=limit, stored=stored)


def every_plan():
    yield plan("bind,bjnd->bnij", (4, 10, 8, 16), (4, 5, 8, 16), dtypes="float32")
    yield plan("bind,bjnd->bnij", (4, 10, 8, 16), (4, 5, 8, 16), dtypes="float32", backend="array_api")
    yield plan("iij,jk,lk->il", (3, 3, 4), (4, 5), (6, 5), dtypes="int64", backend="torch")
    yield plan("ij->ij", (3, 4))
    yield plan("ij,jk->ik", (3, 0), (0, 4))
    yield plan("...i,...i->...", (1, 5), (7, 1))
    yield plan("我你,你他->我他", (3, 4), (4, 5))
    for count in (3, 13, 60):
        equation, shapes = network(count, count)
        yield plan(equation, *shapes, optimize="greedy")
    yield from map(blocked, BLOCKED)


EVERY = list(every_plan())


def named(made):
    return f"{getattr(made.equation, 'text', made.equation)[:40]} on {made.backend}"


every = pytest.mark.parametrize("made", EVERY, ids=map(named, EVERY))


def elements(svg, tag, *classes):
    """The elements of a kind, or those of some classes."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}{tag}")
    return [element for element in found if not classes or element.get("class") in classes]


def texts(svg):
    return [element.text for element in elements(svg, "text")]


def boxes(svg, tag, *classes):
    """Left, top, right and bottom of texts or rectangles."""
    result = []
    for element in elements(svg, tag, *classes):
        x, y, width = (float(element.get(name)) for name in ("x", "y", "textLength" if tag == "text" else "width"))
        top, bottom = (y - 11, y + 4) if tag == "text" else (y, y + float(element.get("height")))
        result.append((x, top, x + width, bottom))
    return result


def meets(one, other):
    """Whether two boxes have room in common."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def starts(svg, *classes):
    """Where paths of some classes begin, such as the symbols of rows."""
    matches = [re.match(r"M([\d.]+) ([\d.]+)", path.get("d")) for path in elements(svg, "path", *classes)]
    return [tuple(map(float, match.groups())) for match in matches]


def nodes(drawing):
    """The place of each row's symbol in the tree."""
    return starts(drawing.svg, *(row.symbol for row in drawing.timeline.rows))


def test_boxes_that_overlap_meet_and_others_do_not():
    assert meets((0, 0, 2, 2), (1, 1, 3, 3))
    assert not meets((0, 0, 2, 2), (2, 0, 3, 2))


@every
def test_a_picture_is_one_svg_element_that_says_what_it_is(made):
    root = ElementTree.fromstring(made.draw().svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text.startswith("Plan of ")
    assert root[1].tag == f"{SVG}desc"
    assert str(made) in root[1].text


@every
def test_no_two_texts_meet_none_is_cut_off_and_none_lies_on_the_tree_or_on_the_bars(made):
    drawing = made.draw()
    root = ElementTree.fromstring(drawing.svg)
    width, height = float(root.get("width")), float(root.get("height"))
    placed, places = boxes(drawing.svg, "text"), nodes(drawing)
    tree = 0, places[0][1] - 8, max(x for x, _ in places) + 6, height
    others = [tree, *boxes(drawing.svg, "rect", "base", "made")]
    assert all(0 <= left <= right <= width and 0 <= top <= bottom <= height for left, top, right, bottom in placed)
    assert not any(meets(one, other) for one, other in chain(combinations(placed, 2), product(placed, others)))


@pytest.mark.parametrize("made", EVERY[: -len(BLOCKED)], ids=map(named, EVERY))
def test_each_operand_and_each_op_appears_once(made):
    calls = Counter(row.call.split()[0] for row in made.draw().timeline.rows)
    assert calls.pop("result") == 1
    assert calls == {f"%{slot}": 1 for slot in [*range(len(made.operands)), *(op.out for op in made.ops)]}
    heads = Counter(head for text in texts(made.draw().svg) for head in re.findall(r"(%\d+) = ", text))
    assert heads == calls


@every
def test_lines_lead_to_what_takes_a_value_from_where_it_is_made_and_through_no_other_node(made):
    drawing = made.draw()
    rows, seen = drawing.timeline.rows, set()
    for row in rows:
        assert set(row.sources) <= seen
        seen.add(row.number)
    assert {source for row in rows for source in row.sources} == seen - {-1}
    places = dict(zip((row.number for row in rows), nodes(drawing)))
    assert len(places) == len(nodes(drawing)) == len(rows)
    begins = Counter(starts(drawing.svg, "edge"))
    assert begins == Counter(places[source] for row in rows for source in set(row.sources))
    for row in rows:
        for source in row.sources:
            (x, top), (_, bottom) = places[source], places[row.number]
            between = [
                other for other in rows if places[other.number][0] == x and top < places[other.number][1] < bottom
            ]
            assert all(source in other.sources for other in between)


@every
def test_bars_are_as_long_as_the_memory_that_rows_hold_and_the_most_is_the_peak_of_the_plan(made):
    drawing = made.draw()
    assert drawing.timeline.peak_bytes == made.peak_bytes
    held = [row.held for row in drawing.timeline.rows if row.held]
    lengths = [right - left for left, _, right, _ in boxes(drawing.svg, "rect", "made")]
    most = max(held, default=0)
    assert lengths == pytest.approx([max(lengths) * each / most for each in held], abs=0.2)


def test_memory_is_what_is_alive_while_each_op_runs_and_is_said_where_it_changes():
    made = plan("bind,bjnd->bnij", (4, 10, 8, 16), (4, 5, 8, 16), dtypes="float32", backend="array_api")
    found = made.draw().timeline
    first, second, result = 4 * 4 * 10 * 8 * 16, 4 * 4 * 5 * 8 * 16, 4 * 4 * 8 * 10 * 5
    assert found.base == first + second
    held = {row.call.split()[0]: row.held for row in found.rows}
    both = first + second
    assert held == {"%0": 0, "%2": first, "%1": first, "%3": both, "%4": both + result, "result": result}
    said = [text for text in texts(EVERY[0].draw().svg) if re.fullmatch(r"[\d.]+ kB", text)]
    assert said == ["30.7 kB", "37.1 kB"]


def test_copies_have_a_symbol_and_their_reason_in_words():
    svg = plan("bind,bjnd->bnij", (4, 10, 8, 16), (4, 5, 8, 16), backend="array_api").draw().svg
    assert len(elements(svg, "path", "copy")) == 2
    written = " ".join(text.text for text in elements(svg, "text", "copy"))
    assert re.fullmatch(r"(copy [\d.]+ kB: its axes in the order of the matmul ?){2}", written)


TOLD = [
    (EVERY[0], {"b=4 n=8 i=10 j=5, sum over d=16", "25.6 k multiply-adds", "6.4 kB float32"}),
    (plan("abc,dbc->ad", (20, 30, 40), (50, 30, 40)), {"a=20 b=30 c=40", "a=20 d=50, sum over b=30 c=40", "view"}),
    (plan("ij,jk->ik", (30, 40), (40, 50), dtypes=["float32", "float64"]), {"4.8 kB float32", "16 kB float64"}),
    (blocked(BLOCKED[0]), {"cut i  900 into 4 blocks of up to 225", "4×", "28×", "read", "stored in the result"}),
]


@pytest.mark.parametrize(("made", "told"), TOLD, ids=[named(made) for made, _ in TOLD])
def test_rows_show_labels_sizes_sums_bytes_dtypes_costs_and_repeats(made, told):
    assert told <= {re.sub(" {2,}", "  ", text) for text in texts(made.draw().svg)}


def test_the_limit_is_drawn_where_it_is_near_and_said_where_it_is_far():
    near, far = (blocked(case).draw().svg for case in BLOCKED[:2])
    assert "the limit" in texts(near)
    assert any("of the limit of 9 MB" in text for text in texts(near))
    assert near.count('class="limit"') == 2
    assert 'class="limit"' not in far
    assert any("of the limit of 900 MB" in text for text in texts(far))


def luminance(colour):
    """As the Web Content Accessibility Guidelines have it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_signs_have_the_contrast_that_the_guidelines_ask_for_in_each_theme(theme):
    """4.5 for texts, 3 for what must be seen to understand; of memory that is there all the time, its outline."""
    colours = {name: pair[theme] for name, pair in _COLOURS.items()}
    for ground in (colours["ground"], colours["band"]):
        assert min(contrast(colours[name], ground) for name in ("text", "quiet", "copy", "native")) >= 4.5
        assert min(contrast(colours[name], ground) for name in ("line", "work", "made", "limit")) >= 3
    shown = EVERY[0]._repr_html_()
    plain = shown.split("@media (prefers-color-scheme:dark)")[theme]
    assert f".einsumx .ground{{fill:{colours['ground']}}}" in plain
    told = ["true", "false"][theme]
    rule = rf"body\[data-jp-theme-light={told}\][^{{}}]* \.einsumx \.ground\{{fill:(#\w+)\}}"
    assert re.findall(rule, shown) == [colours["ground"]]


# -- hostile plans ----------------------------------------------------------------------------------------------

HOSTILE = "</text><script>alert(1)</script><!-- ]]> & \" ' \x00\x1b\ud800 \n"


@pytest.fixture
def hostile():
    """A plan in which every text is meant to break out."""
    op = Copy(1, 0, HOSTILE)
    harmless = plan("ij->ij", (2, 3))
    contraction = replace(
        harmless.contraction,
        equation=harmless.contraction.equation._replace(named=HOSTILE),
        operands=(Operand((2, 3), HOSTILE),),
        dtype=HOSTILE,
        place=replace(harmless.contraction.place, backend=HOSTILE, device=HOSTILE),
    )
    return replace(harmless, contraction=contraction, ops=(op,), result=1)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = Counter()

    def handle_starttag(self, tag, attributes):
        self.found[tag] += 1


def test_texts_of_a_plan_never_become_elements(hostile):
    svg = hostile.draw().svg
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "desc", "style", "rect", "path", "text", "g",
    }  # fmt: skip
    assert any("<script>alert(1)</script>" in (text or "") for text in texts(svg))
    svg.encode()
    for page in (hostile.draw().html, hostile._repr_html_()):
        tags = Tags()
        tags.feed(page)
        assert tags.found["script"] == 0
        assert tags.found["svg"] == 1
        page.encode()


# -- what is saved and shown ------------------------------------------------------------------------------------


def test_a_picture_is_saved_as_its_name_ends(tmp_path):
    drawing = EVERY[0].draw()
    drawing.save(tmp_path / "plan.svg")
    drawing.save(str(tmp_path / "plan.HTML"))
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8") == drawing.svg
    assert (tmp_path / "plan.HTML").read_text(encoding="utf-8") == drawing.html
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["plan.png", ".svg"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(einsumx.EinsumxError, match=r"\.svg or \.html"):
        EVERY[0].draw().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("made", [EVERY[1], EVERY[-2]], ids=["plan", "blocks"])
def test_a_page_has_the_picture_and_the_text_and_loads_nothing(made):
    drawing = made.draw()
    page = drawing.html
    assert drawing.svg in page
    assert str(made) in unescape(page)
    assert not re.search(r"(?:src|href)=", page)
    assert drawing._repr_svg_() in made._repr_html_()


# -- the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--memory-limit", "9MB", "--stored"), ("--json",)])
def test_explain_writes_pictures_beside_what_it_prints(tmp_path, capsys, more):
    asked = ("explain", "ij,jk->ik", "900,800", "800,900", "--dtype", "float64", *more)
    assert main(asked) == 0
    printed = capsys.readouterr().out
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    assert main([*asked, "--svg", str(svg), "--html", str(html)]) == 0
    assert capsys.readouterr().out == printed
    limit = {"memory_limit": "9MB", "stored": True} if "--stored" in more else {}
    drawing = plan("ij,jk->ik", (900, 800), (800, 900), **limit).draw()
    assert svg.read_text(encoding="utf-8") == drawing.svg
    assert html.read_text(encoding="utf-8") == drawing.html


def test_explain_refuses_names_that_end_otherwise_and_says_where_it_cannot_write(tmp_path, capsys):
    for option, name in (("--svg", "a.html"), ("--html", "a.svg"), ("--svg", "")):
        with pytest.raises(SystemExit, match="2"):
            main(["explain", "ij->ij", "2,3", option, str(tmp_path / name)])
        assert "does not end in" in capsys.readouterr().err
    path = tmp_path / "no folder" / "a.svg"
    assert main(["explain", "ij->ij", "2,3", "--svg", str(path)]) == 2
    assert f"{path} cannot be written: No such file or directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# -- many ops ---------------------------------------------------------------------------------------------------


def a_chain(count):
    """The product of so many matrices, from left to right."""
    terms = ",".join(symbol(number) + symbol(number + 1) for number in range(count))
    steps = [(0, 1), *((0, count - 1 - step) for step in range(1, count - 1))]
    return plan(f"{terms}->{symbol(0)}{symbol(count)}", *[(3, 3)] * count, optimize=steps)


SHOWN = {
    "html": lambda made: made.draw().html,
    "text": str,
    "peak_bytes": lambda made: made.peak_bytes,
    "source": lambda made: made.source(),
    "json": lambda made: made.from_json(made.to_json()),
}


@pytest.mark.long
@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_a_plan_of_twice_the_ops_takes_twice_the_steps_to_show(shown):
    small, large = a_chain(100), a_chain(200)
    for made in (small, large):
        shown(made)
    assert entered(lambda: shown(large)) < 2.2 * entered(lambda: shown(small))
