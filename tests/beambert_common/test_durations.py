import pytest

from beambert_common.durations import format_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (106, "1 min 46 s"),
        (150, "2 min 30 s"),
        (599.6, "10 min"),
        (600, "10 min"),
        (3599, "60 min"),
        (3600, "1.0 h"),
        (47.5 * 3600, "47.5 h"),
        (48 * 3600, "2.0 days"),
        (1e9, "11,574.1 days"),
    ],
)
def test_the_largest_fitting_unit(seconds, text):
    assert format_duration(seconds) == text
