"""Test that tutorials run as written and print the output that they show, and the comparison itself."""

import pytest

from tests.conftest import ROOT
from tests.tutorials import TutorialError, compare, run_page

# Tutorials that take less than a minute; `make tutorials` runs all of them.
SHORT = ("japanese-and-khmer", "laptop-to-dataflow")
PRINTED = """warning: The text is small
Pretraining data: 2 shards, 11 copies
shards      data/shards/  11 files, 10,509 training examples, loss 6.388
    75.4%  documents in 0.6 s, 98.4 seq/s, 12.6k tok/s
Done on 2026-11-21
"""
PAGE = """# A page

<!-- run
echo 3 > hidden
-->

```sh
export NAME=world
mkdir -p below && cd below
```

```sh
echo "hello $NAME, $(cat ../hidden) files"
```

```text
hello world, 3 files
```

<!-- not run: fails -->
```sh
exit 1
```

```text
nothing to compare with
```

```python
print("from Python")
```

```text
from Python
```
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_tutorial_runs_as_written(name, tmp_path):
    run_page(ROOT / f"docs/tutorials/{name}.md", tmp_path)


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED,
        "Pretraining data: 2 shards, 11 copies\n...\nDone on 2026-11-21",
        "shards data/shards/ ... loss 6.1",
        "80.0% documents in 12 min, 3.1 seq/s, 900 tok/s",
        "Done on 2024-01-02",
    ],
)
def test_output_with_close_numbers_and_other_times_passes(shown):
    assert compare(shown, PRINTED) == ""


@pytest.mark.parametrize(
    "shown",
    [
        "Pretraining data: 2 shards, 11 passes",
        "Pretraining data: 3 shards, 11 copies",
        "shards data/shards/ 11 files, 20,000 training examples, loss 6.388",
        "Done on 2026-11-21\nPretraining data: 2 shards, 11 copies",
        "Pretraining data: 2 shards",
    ],
)
def test_changed_output_is_reported_with_the_line(shown):
    problem = compare(shown, PRINTED)
    assert problem.startswith("not printed")
    assert any(line in problem for line in shown.splitlines())


def test_numbers_are_ignored_on_request():
    assert compare("Pretraining data: 9 shards, 1 copies", PRINTED, any_numbers=True) == ""
    assert compare("Pretraining data: 9 shards, 1 passes", PRINTED, any_numbers=True)


def test_page_runs_in_order_in_one_directory(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    run_page(page, tmp_path / "work")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hello world, 3", "hello there, 3", "not printed"),
        ("from Python\n```\n", "from C\n```\n", "not printed"),
        ("mkdir", "false; mkdir", "exit code 1"),
    ],
)
def test_changed_page_fails(tmp_path, old, new, message):
    assert PAGE.count(old) == 1
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(TutorialError, match=message):
        run_page(page, tmp_path / "work")


def test_needed_data_is_linked_under_its_name(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small.txt").write_text("two words\n")
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: ../shared/data/small.txt as corpus.txt -->\n\n```sh\nwc -w corpus.txt\n```\n")
    run_page(page, tmp_path / "work", tmp_path / "data")
    with pytest.raises(TutorialError, match=r"needs \.\./shared/data/small\.txt"):
        run_page(page, tmp_path / "again")
