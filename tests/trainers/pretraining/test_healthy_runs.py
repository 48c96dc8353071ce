"""Test that healthy runs of toy languages leave the plateau without a warning; tests/slow has runs of real text."""

import re

import pytest

from tests.trainers.pretraining.diagnosed_runs import GOOD, pretrained
from tests.trainers.pretraining.toy_language import Language, write_language


def assert_healthy(result, capsys) -> None:
    assert result.causes == []
    assert not result.is_stuck
    printed = capsys.readouterr().err
    warnings = [line for line in printed.splitlines() if line.startswith("warning:")]
    assert warnings == []


@pytest.mark.slow
def test_a_toy_language_is_learned_without_an_alarm(tmp_path, capsys):
    language = Language()
    write_language(tmp_path / "data", language)
    flags = (*GOOD, "--num_warmup_steps", "60", "--num_train_steps", "240", "--eval_steps", "120")
    result = pretrained(tmp_path, tmp_path / "data", language.model(), *flags)
    assert_healthy(result, capsys)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    section = page.partition('<section id="warnings">')[2].partition("</section>")[0]
    # Waiting for data depends on the load of the machine.
    assert [text for text in re.findall(r"<li>(.*?)</li>", section) if "waiting for data" not in text] == []
