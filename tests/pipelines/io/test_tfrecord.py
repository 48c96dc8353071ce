import io

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.io.tfrecord import framed, read_records


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_records_are_those_of_tensorflow(tmp_path_factory, contents):
    path = tmp_path_factory.mktemp("records") / "r"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)
    written = b"".join(map(framed, contents))
    assert written == path.read_bytes()
    assert [content for _, content in read_records(io.BytesIO(written), "r")] == contents
