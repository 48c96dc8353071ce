"""Test event files against the messages of TensorFlow, and as TensorBoard reads them."""

import time

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.monitoring.tensorboard import EventLog

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Enums of TensorFlow that have no public names.
SCALAR, TENSOR = 1, 2


def events_of(directory):
    """Return the events of the only file, as read by TensorFlow, which verifies the checksums."""
    (path,) = directory.iterdir()
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [tf.compat.v1.Event.FromString(record) for record in records]


def value_of(tag, content, dtype, plugin, data_class):
    metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    tensor = tf.make_tensor_proto(content, dtype)
    return tf.compat.v1.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)


@given(
    step=st.integers(0, 2**62),
    scalars=st.dictionaries(TEXT, st.floats(width=32) | st.floats() | st.integers(-(2**40), 2**40), max_size=3),
    texts=st.dictionaries(TEXT, st.lists(TEXT, max_size=3), max_size=2),
)
@settings(max_examples=25)
def test_events_are_those_of_tensorflow(tmp_path_factory, step, scalars, texts):
    directory = tmp_path_factory.mktemp("events")
    log = EventLog(directory, 41)
    log.write(step, scalars, texts)
    log.close()
    events = events_of(directory)
    values = [value_of(tag, value, tf.float32, "scalars", SCALAR) for tag, value in scalars.items()]
    for tag, lines in texts.items():
        values.append(value_of(tag, ["\n".join("    " + line for line in lines)], tf.string, "text", TENSOR))
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    expected = [
        {"file_version": "brain.Event:2"},
        {"step": 42, "session_log": start},
        {"step": step, "summary": tf.compat.v1.Summary(value=values)},
    ]
    assert len(events) == 3
    for event, fields in zip(events, expected, strict=True):
        # Bytes are compared, since messages with NaN are not equal to themselves.
        message = tf.compat.v1.Event(wall_time=event.wall_time, **fields)
        assert event.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


def test_each_step_is_in_the_file_at_once_with_the_time(tmp_path):
    log = EventLog(tmp_path, 0)
    moments = [time.time()]
    for step in (1, 2):
        log.write(step, {"loss": float(step)})
        moments.append(time.time())
        assert [event.step for event in events_of(tmp_path)][2:] == list(range(1, step + 1))
    log.close()
    first, second = events_of(tmp_path)[2:]
    assert moments[0] <= first.wall_time <= moments[1] <= second.wall_time <= moments[2]
