"""The README's examples, run as they stand there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pitstop
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = sorted(f"docs/{page.name}" for page in ROOT.glob("docs/*.md"))
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *DOCS]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run_example(directory):
    """What the example printed: the steps done before it, and the weights after it."""
    (example,) = blocks("python")
    command = [sys.executable, "-c", example]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    return int(lines["steps done before"]), ast.literal_eval(lines["weights"])


def test_the_example_resumes_where_it_ended(tmp_path):
    uninterrupted = np.zeros(3)
    rng = np.random.default_rng(0)
    for expected_start in (0, 100, 200):
        for _ in range(100):
            uninterrupted += rng.normal(size=3)
        assert run_example(tmp_path) == (expected_start, uninterrupted.tolist())
    steps = [info.step for info in pitstop.checkpoints(tmp_path / "runs" / "example")]
    assert steps == [280, 300]


def test_the_example_is_short():
    (example,) = blocks("python")
    assert len(example.splitlines()) <= 15


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_exist(page):
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text()):
        file, _, heading = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert heading in anchors, target


@pytest.mark.parametrize("page", PAGES)
def test_files_and_commands_that_are_named_exist(page):
    text = (ROOT / page).read_text()
    for path in re.findall(r"`((?:benches|docs|examples|fuzz|src|tests)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert f"\n{target}:" in makefile, target
    manifest = (ROOT / "Cargo.toml").read_text()
    for name in re.findall(r"cargo test --test (\w+)", text):
        files = [ROOT / "tests" / f"{name}.rs", ROOT / "tests" / name / "main.rs"]
        assert any(file.exists() for file in files) or f'name = "{name}"' in manifest, name


def test_every_public_name_that_the_readme_uses_exists():
    for name in re.findall(r"\bpitstop\.([A-Za-z_]+)\(", README):
        assert hasattr(pitstop, name), name
    for name in re.findall(r"\bckpt\.([a-z_]+)\(", README):
        assert hasattr(pitstop.AsyncCheckpointer, name), name
