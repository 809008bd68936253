"""Links between the pages: what they name is there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HOME = PROJECT["urls"]["Source"]
READMES = sorted(ROOT.glob("README*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
INLINE = re.compile(r"\]\(([^)\s]+)\)")
REFERENCE = re.compile(r"^\[[^\]]+\]: (\S+)$", re.MULTILINE)
IMAGE = re.compile(r'src(?:set)?="([^"]+)"')
FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return INLINE.findall(text) + REFERENCE.findall(text)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings_that_exist(page: Path) -> None:
    missing = []
    for link in links(page):
        if link.startswith(HOME):
            place, _, anchor = link.removeprefix(HOME).partition("#")
            target = ROOT / re.sub(r"^/?(blob|tree)/main/", "", place)
        elif "://" in link or link.startswith("mailto:"):
            continue
        else:
            place, _, anchor = link.partition("#")
            target = page.parent / unquote(place) if place else page
        if not target.exists() or (anchor and target.suffix == ".md" and unquote(anchor) not in anchors(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_links_of_a_readme_lead_somewhere_in_any_clone(page: Path) -> None:
    assert [link for link in [*links(page), *IMAGE.findall(page.read_text(encoding="utf-8"))] if "://" in link] == []


def test_the_readme_of_a_release_links_to_the_project_since_an_index_has_no_files() -> None:
    program = "import hatchling.metadata.core as core, hatchling.plugin.manager as m, os; "
    program += "print(core.ProjectMetadata(os.getcwd(), m.PluginManager()).core.readme)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    found = REFERENCE.findall(done.stdout) + IMAGE.findall(done.stdout)
    assert len(found) > 40
    assert [link for link in found if not link.startswith("https://")] == []


def test_urls_of_the_project_are_in_one_place() -> None:
    assert [url for url in PROJECT["urls"].values() if not url.startswith(HOME)] == []


MAP = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
LIBRARY = ROOT / "src" / "cronsensus"
NAMED = re.compile(r"`([\w./*-]+(?:\.(?:py|sql|lua|md)|/))`")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of a table of the map, row by row; it begins with ``heading``."""
    table = MAP[MAP.index(heading) :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def missing_of(cell: str, *bases: Path) -> list[str]:
    """What a cell names that is nowhere: below a base, or in a folder that the cell has named before."""
    folders, missing = [*bases], []
    for name in NAMED.findall(cell):
        found = next((match for folder in folders for match in folder.glob(name)), None)
        if found is None:
            missing.append(name)
        else:
            folders += [found, found.parent, found.parent.parent]
    return missing


def test_each_file_and_folder_that_the_map_answers_a_question_with_is_there() -> None:
    rows = rows_of("| question |")
    assert len(rows) > 30
    conformance = LIBRARY / "testing" / "conformance"
    missing = [
        name
        for _, sources, tests in rows
        for name in (*missing_of(sources, LIBRARY, ROOT), *missing_of(tests, ROOT / "tests", conformance))
    ]
    assert missing == []


def test_each_file_and_folder_at_the_top_of_the_library_has_a_floor_on_the_map() -> None:
    places = [name.rstrip("/") for _, where, *_ in rows_of("| floor |") for name in NAMED.findall(where)]
    there = {path.name for path in LIBRARY.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(places) == sorted(there - {"__init__.py", "__main__.py"})
