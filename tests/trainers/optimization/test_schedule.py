import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.schedule import Stage, check_batch_sizes, plan_stages, stage_at, stages_before


@st.composite
def runs(draw):
    """Draw arguments of `plan_stages`, and the expected data index and batch size of each step."""
    steps = draw(st.integers(1, 300))
    cuts = sorted(draw(st.sets(st.integers(1, steps - 1), max_size=4))) if steps > 1 else []
    bounds = [0, *cuts, steps]
    lengths = draw(st.permutations([64, 128, 256, 512]))
    phases = [
        (draw(st.sampled_from(lengths[:3])), end - begin, draw(st.none() | st.integers(1, 64)))
        for begin, end in itertools.pairwise(bounds)
    ]
    batch_size = draw(st.integers(1, 64))
    ramp = [(draw(st.integers(1, 64)), end) for end in sorted(draw(st.sets(st.integers(1, 400), max_size=4)))]
    row_lengths = [length for length in lengths if any(length == phase[0] for phase in phases)]
    expected = []
    for length, count, size in phases:
        expected += [(row_lengths.index(length), size or batch_size)] * count
    for step in range(steps):
        smaller = [size for size, end in ramp if step < end]
        if smaller:
            expected[step] = (expected[step][0], smaller[0])
    schedule = ",".join(f"{length}x{count}/{steps}" + (f"@{size}" if size else "") for length, count, size in phases)
    batch_ramp = ",".join(f"{size}:{end}" for size, end in ramp) or None
    return (steps, row_lengths, schedule, batch_size, batch_ramp), expected


@given(runs())
def test_every_step_has_one_stage_and_every_example_one_step(run):
    arguments, expected = run
    stages = plan_stages(*arguments)
    found = []
    consumed = {}
    for stage in stages:
        assert stage.first_step == len(found)
        assert stage.first_example == consumed.get(stage.data, 0)
        count = stage.end_step - stage.first_step
        assert count > 0
        found += [(stage.data, stage.batch_size)] * count
        consumed[stage.data] = stage.first_example + count * stage.batch_size
    assert found == expected
    # Consecutive stages differ in data or batch size.
    assert all(first[:2] != second[:2] for first, second in itertools.pairwise(stages))


@given(runs(), st.integers(0, 300))
def test_stages_before_a_step_are_those_of_a_run_that_ended_there(run, step):
    arguments, expected = run
    stages = plan_stages(*arguments)
    before = stages_before(stages, step)
    assert [stage_at(before, s)[:2] for s in range(min(step, len(expected)))] == expected[:step]
    assert all(stage.end_step <= step for stage in before)
    for s in range(len(expected)):
        stage = stage_at(stages, s)
        assert stage.first_step <= s < stage.end_step


def test_the_papers_two_phases():
    assert plan_stages(1_000_000, [512, 128], "128x0.9,512x0.1", 256, None) == [
        Stage(data=1, batch_size=256, first_step=0, end_step=900_000, first_example=0),
        Stage(data=0, batch_size=256, first_step=900_000, end_step=1_000_000, first_example=0),
    ]


def test_one_directory_needs_no_schedule():
    assert plan_stages(10, [128], None, 32, None) == [Stage(0, 32, 0, 10, 0)]
    assert plan_stages(10, [128], None, 32, "4:20") == [Stage(0, 4, 0, 10, 0)]


def test_shares_that_are_not_exact_in_binary_sum_to_one():
    stages = plan_stages(1000, [1, 2, 3], "1x0.7,2x0.2,3x0.1", 1, None)
    assert [stage.end_step for stage in stages] == [700, 900, 1000]
    for thirds in ("1x0.3333333,2x0.6666666", "1x0.3333334,2x0.6666667"):
        assert plan_stages(90_000_000, [1, 2], thirds, 1, None)[-1].end_step == 90_000_000


@pytest.mark.parametrize(
    ("row_lengths", "schedule", "ramp", "message"),
    [
        ([128, 512], None, None, r"--schedule is missing: --data has 2 directories"),
        (
            [128],
            "128x0.9,512x0.1",
            None,
            r"length 512 must have exactly one --data directory, not 0 \(lengths in --data: 128\)",
        ),
        (
            [128, 128],
            "128x1",
            None,
            r"length 128 must have exactly one --data directory, not 2 \(lengths in --data: 128, 128\)",
        ),
        ([128, 512], "128x1", None, r"no phase for the --data directory of sequence length 512"),
        ([128, 512], "128x0.9,512x0.2", None, r"fractions must sum to 1, not 1.1"),
        ([128, 512], "128x0.999,512x0.001", None, r"phase 512x0.001 has less than one of the 100 steps"),
        *(
            ([128], text, None, r"must be LENGTHxFRACTION or LENGTHxFRACTION@BATCH_SIZE")
            for text in ("", "128", "128x", "x1", "128x0", "128x-1", "128x1/0", "128x1@", "128x1@0", "128x1,", "a")
        ),
        *(
            ([128], None, text, r"must be SIZE:STEP, such as 32:1000")
            for text in ("32", "32:", "0:10", "32:0", "32:1e3", "32:10,", "²:10")
        ),
        ([128], None, "32:10,64:10", r"steps count from the start of training and must increase, but 10 follows 10"),
    ],
)
def test_invalid_schedules_are_one_line_errors(row_lengths, schedule, ramp, message):
    with pytest.raises(TrainingError, match=message) as error:
        plan_stages(100, row_lengths, schedule, 32, ramp)
    assert "\n" not in str(error.value)


def test_batches_must_split_evenly():
    stages = plan_stages(100, [128], None, 32, "12:10")
    check_batch_sizes(stages, 2, 2)
    with pytest.raises(TrainingError, match=r"invalid batch size 12: must be a multiple of 8, 4 replicas times 2 "):
        check_batch_sizes(stages, 4, 2)
