"""From text to piece ids, and from text to a vocabulary: numpy only, but for `in_graph.py`; no Beam, no Keras."""
