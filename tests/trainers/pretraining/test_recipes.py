import argparse

import pytest

from beambert import cli
from beambert.bert_model.config import BertConfig
from beambert.trainers.commands.pretrain import add_arguments
from beambert.trainers.monitoring.throughput import peak_flops
from beambert.trainers.optimization.schedule import check_batch_sizes, plan_stages
from beambert.trainers.pretraining import recipes
from beambert.trainers.pretraining.recipes import RECIPES, expected_hours, recipe_cost, run_cost, with_recipe
from tests.conftest import ROOT


def parse(*argv):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(with_recipe([*argv, "--data", "a", "b", "--output", "c"]))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_existing_flags_and_can_run(name):
    args = parse("--recipe", name)
    assert args.recipe == name
    for flag, value in RECIPES[name].flags.items():
        given = getattr(args, flag)
        assert given == type(given)(value), flag
    lengths = RECIPES[name].row_lengths
    stages = plan_stages(args.num_train_steps, lengths, args.schedule, args.train_batch_size, args.batch_ramp)
    check_batch_sizes(stages, 1, args.gradient_accumulation_steps)
    assert args.num_train_steps % args.save_checkpoints_steps == 0
    assert args.eval_steps % args.save_checkpoints_steps == 0


def test_flags_override_the_recipe_in_any_order():
    for argv in (
        ["--recipe", "paper-base", "--train_batch_size", "32"],
        ["--train_batch_size", "32", "--recipe=paper-base"],
        # 32 is also the default.
        ["--train_batch_size=32", "--recipe", "paper-base"],
    ):
        args = parse(*argv)
        assert (args.train_batch_size, args.num_train_steps, args.model) == (32, 1_000_000, "base")
    assert parse().train_batch_size == 32
    assert parse().recipe is None


def test_the_command_lists_the_recipes(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["pretrain", "--recipe"])
    assert stop.value.code == 0
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["pretrain", "--help"])
    assert alone in capsys.readouterr().out
    for name, recipe in RECIPES.items():
        assert f"\n  {name}: {recipe.summary}\n    beambert pretrain --recipe {name} " in alone
        assert f"\n    time     {recipes.estimated_time(name)}\n    results  {recipe.results}\n" in alone
    assert max(map(len, alone.splitlines())) <= 88


def test_the_command_puts_the_recipe_first():
    _, module = cli.make_parser("pretrain")
    argv = module.complete_arguments(["--recipe", "tiny-cpu", "--model", "mini"])
    assert argv[0] == "--model=tiny"
    assert argv[-2:] == ["--model", "mini"]
    assert "--num_train_steps=12000" in argv
    # The time determines the number of steps.
    timed = module.complete_arguments(["--recipe", "tiny-cpu", "--max_train_time", "2h"])
    assert timed == [word for word in argv[:-4] if "num_train_steps" not in word] + timed[-4:]
    assert timed[-4:] == ["--recipe", "tiny-cpu", "--max_train_time", "2h"]


def test_cost_equals_a_plain_sum():
    config = BertConfig.preset("base", 30522)
    stages = plan_stages(10, [128, 512], "128x0.9,512x0.1", 4, "2:5")
    cost = run_cost(config, stages, [128, 512], [20, 77])
    assert (cost.updates, cost.sequences, cost.positions) == (10, 30, 26 * 128 + 4 * 512)

    def flops_of_a_row(length, predicted):
        layer = 4 * length * 768 * 768 + 2 * length * 768 * 3072 + 2 * length * length * 768
        return 3 * 2 * (12 * layer + 768 * 768 + predicted * (768 * 768 + 768 * 30522))

    assert cost.flops == pytest.approx(26 * flops_of_a_row(128, 20) + 4 * flops_of_a_row(512, 77))


def test_the_papers_runs():
    base, large = recipe_cost("paper-base"), recipe_cost("paper-large")
    # Appendix A.2: 1,000,000 steps of 256 sequences, 90 % of them at 128 tokens.
    assert base[:3] == large[:3] == (1_000_000, 256_000_000, 230_400_000 * 128 + 25_600_000 * 512)
    # Within a tenth of the usual estimate, 6 operations per weight of a matrix product and position. The estimate lacks
    # attention, and the output matrix counts for the predicted positions only.
    assert base.flops == pytest.approx(6 * 85e6 * base.positions, rel=0.1)
    assert large.flops == pytest.approx(6 * 302e6 * large.positions, rel=0.1)


def test_expected_hours_of_recipes():
    for name, least, most in (("one-day", 20, 23), ("tiny-cpu", 0.5, 0.8)):
        assert least < expected_hours(recipe_cost(name), RECIPES[name].hardware) < most
    hours = expected_hours(recipes.RunCost(1, 1, 1, 3.6e15), recipes.Hardware("", 2.0, 0.5))
    assert hours == pytest.approx(1.0)


def test_the_peak_is_that_of_the_utilization_shown_in_training():
    assert recipes.H100.peak_tflops * 1e12 == peak_flops("NVIDIA H100 80GB HBM3", "bfloat16")


def test_the_table_in_the_documents_is_that_of_the_recipes():
    text = (ROOT / "docs/reference/recipes.md").read_text(encoding="utf-8")
    rows = text[text.index("<!-- recipes -->") :].split("\n\n")[0].splitlines()[3:]
    expected = []
    for name, recipe in RECIPES.items():
        cost, flags = recipe_cost(name), recipe.flags
        updates = f"{cost.updates:,} x {int(flags['train_batch_size']):,}"
        expected.append(
            f"| `{name}` | {flags['model']} | {recipe.results} | {recipes.estimated_time(name)} | "
            f"{'; '.join([updates, *filter(None, [flags.get('schedule')])])} | {recipes.rounded(cost.positions)} | "
            f"{cost.flops:.2g} |"
        )
        assert f"## `{name}`" in text
        assert f"\n{recipes.command(name)}\n" in text
    assert rows == expected


def test_documented_utilization_of_the_papers_runs():
    """Compare with 4 days on 16 and 64 chips of 45 TFLOP/s, also for 512 positions in every step."""
    text = " ".join((ROOT / "docs/reference/recipes.md").read_text(encoding="utf-8").split())
    shares, longest = [], []
    for name, chips in (("paper-base", 16), ("paper-large", 64)):
        possible = chips * 45e12 * 4 * 86400
        shares.append(recipe_cost(name).flops / possible)
        config = BertConfig.preset(RECIPES[name].flags["model"], 30522)
        longest.append(run_cost(config, plan_stages(1_000_000, [512], None, 256, None), [512], [77]).flops / possible)
    assert "{:.1%} and {:.1%} of what the chips could do".format(*shares).replace("%", " %") in text
    assert "had every step had 512 tokens per sequence, {:.0%} and {:.0%}".format(*longest).replace("%", " %") in text


def test_documented_hours_at_a_lower_utilization():
    slow = recipes.H100._replace(utilization=0.3)
    assert round(expected_hours(recipe_cost("paper-base"), slow)) == 22
    assert round(expected_hours(recipe_cost("one-day"), slow)) == 32
    assert expected_hours(recipe_cost("one-day"), slow) * 80 / 120 < 22
