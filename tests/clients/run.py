"""Runs other projects' tests twice, as they are and with frameworks patched by einsumx, and compares the outcomes.

``nox -s clients`` installs the clients and runs this; ``nox -s clients -- einops quimb`` runs some of them. Each result
is kept as JSON, and ``docs/clients.md`` gets the table of all that are kept.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clients import CLIENTS, Client, Git, Here, Installed, Sdist

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "clients.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
TIMEOUT = 1800
"""Seconds for one run of one client's tests."""

Result = dict[str, Any]


def main() -> int:
    """Run the command; the exit status is 1 if a client has an outcome that differs for no listed reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(each.name for each in CLIENTS))
    parser.add_argument("--cache", type=Path, default=Path(".nox/.cache/clients"), help="for tests and results")
    parser.add_argument("--requirements", action="store_true", help="print what the clients need, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page from the results, and run nothing")
    options = parser.parse_args()
    chosen = [each for each in CLIENTS if each.name in options.clients or not options.clients]
    if unknown := set(options.clients) - {each.name for each in CLIENTS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    cache = options.cache.resolve()
    if options.requirements:
        print(*sorted({each for client in chosen for each in client.requirements}), sep="\n")
        return 0
    if not options.page:
        for client in chosen:
            save(cache, client, run(client, cache))
    results = {each.name: load(cache, each) for each in CLIENTS if kept(cache, each).exists()}
    write_page(results)
    for client in chosen:
        show(client, results[client.name])
    return int(any(unexplained(client, results[client.name]) for client in chosen))


def kept(cache: Path, client: Client) -> Path:
    """The file of a client's result."""
    return cache / "results" / f"{client.name}.json"


def save(cache: Path, client: Client, result: Result) -> None:
    """Keep a client's result."""
    kept(cache, client).parent.mkdir(parents=True, exist_ok=True)
    kept(cache, client).write_text(json.dumps(result, indent=1))


def load(cache: Path, client: Client) -> Result:
    """A client's result."""
    result: Result = json.loads(kept(cache, client).read_text())
    return result


# -- running ------------------------------------------------------------------------------------------------


def run(client: Client, cache: Path) -> Result:
    """Run a client's tests as they are, and with the frameworks patched."""
    root = source_of(client, cache)
    return {
        "version": importlib.metadata.version(client.package),
        "einsumx": importlib.metadata.version("einsumx"),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "plain": run_tests(client, root, is_patched=False),
        "patched": run_tests(client, root, is_patched=True),
    }


def run_tests(client: Client, root: Path, *, is_patched: bool) -> Result:
    """Run a client's tests once; see the plugin ``counting`` for what is reported."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = {
            **os.environ,
            **client.environment,
            "EINSUMX_CACHE": os.devnull,
            "EINSUMX_CLIENT_PATCH": ",".join(client.frameworks),
            "EINSUMX_CLIENT_REPLACE": ",".join(client.replaced),
            "EINSUMX_CLIENT_NATIVE": str(int(not is_patched)),
            "EINSUMX_CLIENT_REPORT": str(report),
            # What compilers keep on disk would make the second run faster.
            "NUMBA_CACHE_DIR": str(Path(folder) / "numba"),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor"),
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(HERE),
        }
        options = ["-p", "counting", "-p", "no:cacheprovider", "-q", "--no-header", "--tb=short"]
        options += ["--continue-on-collection-errors", *client.options]
        # An empty folder is the current one, as Python imports from there.
        elsewhere = Path(folder) / "cwd"
        elsewhere.mkdir()
        # Of settings and fixtures, only the client's own count: its folder may lie in this checkout.
        settings = root / client.settings if client.settings else os.devnull
        places = [f"--rootdir={root}", f"--confcutdir={root}", f"--config-file={settings}"]
        command = [sys.executable, "-m", "pytest", *places, *options]
        command += [str(root / each) for each in client.tests]
        print(f"{client.name}: {'patched' if is_patched else 'plain'}", flush=True)
        try:
            done = subprocess.run(
                command, cwd=elsewhere, env=environment, timeout=TIMEOUT, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            return {"tests": {}, "error": f"more than {TIMEOUT} seconds"}
        print(*done.stdout.splitlines()[-1:], sep="\n", flush=True)
        if not report.exists():
            return {"tests": {}, "error": (done.stdout + done.stderr)[-3000:]}
        result: Result = json.loads(report.read_text())
        result["status"] = done.returncode
        return result


def source_of(client: Client, cache: Path) -> Path:
    """The folder that a client's tests are in; those that are not installed are downloaded once."""
    match client.source:
        case Here():
            return HERE
        case Installed(module):
            spec = importlib.util.find_spec(module)
            assert spec is not None
            assert spec.origin is not None
            return Path(spec.origin).parent
        case Sdist(members):
            version = importlib.metadata.version(client.package)
            return downloaded(cache / "sources" / f"{client.package}-{version}", sdist, client, version, members)
        case Git(address, tag, paths):
            return downloaded(cache / "sources" / f"{client.package}-{tag}", clone, address, tag, paths)


def downloaded(folder: Path, download: Any, *arguments: Any) -> Path:
    """The folder, which ``download`` fills if it does not exist."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            download(Path(part) / "part", *arguments)
            shutil.move(Path(part) / "part", folder)
    return folder


def sdist(folder: Path, client: Client, version: str, members: Iterable[str]) -> None:
    """Unpack these folders and files of a package's sdist; its modules stay out, so that the installed ones run."""
    with tempfile.TemporaryDirectory() as part:
        name = f"{client.package}=={version}"
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-binary", client.package, "--no-deps", "-d", part)
        subprocess.run([*pip, name], check=True)
        (path,) = Path(part).glob("*.tar.gz")
        with tarfile.open(path) as archive:
            archive.extractall(part, filter="data")
        (unpacked,) = (each for each in Path(part).iterdir() if each.is_dir())
        folder.mkdir()
        for member in members:
            (folder / member).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(unpacked / member, folder / member)


def clone(folder: Path, address: str, tag: str, paths: Iterable[str]) -> None:
    """Check out these paths of a repository, and download no others."""
    git = ("git", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false")
    options = ("-q", "--depth", "1", "--filter=blob:none", "--no-checkout", "--branch", tag)
    subprocess.run([*git, "clone", *options, address, str(folder)], check=True)
    subprocess.run([*git, "-C", str(folder), "checkout", "-q", tag, "--", *paths], check=True)


# -- comparing ----------------------------------------------------------------------------------------------


def differences(result: Result) -> dict[str, tuple[str, str]]:
    """The tests whose outcomes differ: plain, and patched."""
    plain, patched = (result[mode]["tests"] for mode in ("plain", "patched"))
    return {
        test: (before, after)
        for test in sorted({*plain, *patched})
        if (before := outcome(plain, test)) != (after := outcome(patched, test))
    }


def outcome(tests: dict[str, Any], test: str) -> str:
    """A test's outcome, or "missing"."""
    return str(tests.get(test, {"outcome": "missing"})["outcome"])


def reason(client: Client, test: str) -> str:
    """Why a test's outcome differs, or an empty string."""
    return next((why for part, why in client.reasons.items() if part in test), "")


def unexplained(client: Client, result: Result) -> bool:
    """Whether an outcome differs for no listed reason, or a run has no outcomes."""
    failed = any("error" in result[mode] for mode in ("plain", "patched"))
    return failed or any(not reason(client, test) for test in differences(result))


def passed(run: Result) -> int:
    """How many tests passed."""
    return sum(test["outcome"] == "passed" for test in run["tests"].values())


def inside(run: Result) -> str:
    """The processor time in einsum, in seconds."""
    times = run.get("inside", {})
    return f"{times['first'] + times['again']:.2f}" if times else "-"


def row(client: Client, result: Result) -> list[str]:
    """A client's row of the table."""
    plain, patched = result["plain"], result["patched"]
    called = sum(test["served"] + test["left"] > 0 for test in patched["tests"].values())
    return [
        f"{client.title} {result['version']}",
        ", ".join(client.frameworks),
        f"{called:,}",
        f"{passed(plain):,}",
        f"{passed(patched):,}",
        f"{patched.get('served', 0):,}",
        f"{patched.get('left', 0):,}",
        f"{inside(plain)}, {inside(patched)}",
    ]


HEAD = [
    "client",
    "patched",
    "tests that call einsum",
    "pass as before",
    "pass patched",
    "calls served",
    "left",
    "in einsum before, patched",
]


def write_page(results: dict[str, Result]) -> None:
    """Put the table and the differences into the page."""
    clients = [each for each in CLIENTS if each.name in results]
    dates = sorted({results[each.name]["date"] for each in clients})
    versions = sorted({f"einsumx {each['einsumx']} on Python {each['python']}" for each in results.values()})
    lines = [f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {', '.join(versions)}:", ""] if dates else []
    lines += table([row(each, results[each.name]) for each in clients])
    lines += ["", "### Differences", ""]
    listed = [line for each in clients for line in difference_lines(each, results[each.name])]
    lines += listed or ["None."]
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + rest.partition(END)[2])


def table(rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table."""
    rule = ["---" if place < 2 else "---:" for place in range(len(HEAD))]
    return ["| " + " | ".join(cells) + " |" for cells in (HEAD, rule, *rows)]


def difference_lines(client: Client, result: Result) -> list[str]:
    """A list of a client's differences, those with one reason together."""
    together = Counter(
        (before, after, reason(client, test) or "no reason is known yet")
        for test, (before, after) in differences(result).items()
    )
    return [
        f"- **{client.title}** ({number}, {before} before, {after} patched): {why}."
        for (before, after, why), number in together.items()
    ]


def show(client: Client, result: Result) -> None:
    """Print a client's row and differences."""
    print("  ".join(f"{name}: {cell}" for name, cell in zip(HEAD, row(client, result), strict=True)))
    for mode in ("plain", "patched"):
        if "error" in result[mode]:
            print(f"  {mode}: {result[mode]['error']}")
    for missing in result["patched"].get("missing", ()):
        print(f"  not patched: {missing}")
    for why, count in result["patched"].get("reasons", {}).items():
        print(f"  {count:,} calls left, because {why.splitlines()[0]}")
    for test, (before, after) in differences(result).items():
        message = result["patched"]["tests"].get(test, {}).get("message", "")
        print(f"  {test}: {before} -> {after}  {reason(client, test)}\n      {message[-600:]}")


if __name__ == "__main__":
    sys.exit(main())
