"""Label the documents of a corpus with a fine-tuned model, exported with `beambert export --to onnx`.

    python examples/predict_corpus.py --corpus corpus --model model-onnx --output labels.jsonl

Flags of Beam, such as --runner, may follow. Needs the extras [data] and [onnx].
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.ml.inference.onnx_inference import OnnxModelHandlerNumpy
from apache_beam.options.pipeline_options import PipelineOptions

from beambert.pipelines.documents import Document
from beambert.pipelines.transforms.corpora import ReadCorpus
from beambert.tokenizer.tokenizer import Tokenizer

INPUTS = ("input_ids", "input_mask", "segment_ids")


class Encode(beam.DoFn):
    """Convert a document to its ID and the model inputs of its first sentences, int32 [3, positions]."""

    def __init__(self, model: str, max_seq_length: int) -> None:
        self._model, self._max_seq_length = model, max_seq_length

    def setup(self) -> None:
        """Load the tokenizer of the model."""
        self._tokenizer = Tokenizer.load(self._model)

    def process(self, document: Document) -> Any:
        """Yield (document ID, inputs)."""
        text = " ".join(document.sentences[:5])
        yield document.id, np.array(self._tokenizer.encode(text, max_seq_length=self._max_seq_length), np.int32)


def probabilities(session: Any, batch: Iterable[np.ndarray], _arguments: Any = None) -> np.ndarray:
    """Return the probabilities of the labels, float32 [texts, labels]."""
    inputs = np.stack(list(batch), axis=1)  # [3, texts, positions]
    return session.run(["probabilities"], dict(zip(INPUTS, inputs, strict=True)))[0]


def main() -> None:
    """Run the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="directory of beambert corpus")
    parser.add_argument("--model", required=True, help="directory of beambert export --to onnx")
    parser.add_argument("--output", required=True, help="new file, JSON Lines")
    parser.add_argument("--max_seq_length", type=int, default=128, help="maximum length of a text in tokens")
    args, beam_flags = parser.parse_known_args()
    handler = OnnxModelHandlerNumpy(
        str(Path(args.model) / "model.onnx"), providers=["CPUExecutionProvider"], inference_fn=probabilities
    )
    with beam.Pipeline(options=PipelineOptions(beam_flags)) as pipeline:
        _ = (
            pipeline
            | ReadCorpus(args.corpus)
            | beam.ParDo(Encode(args.model, args.max_seq_length))
            | RunInference(KeyedModelHandler(handler))
            | beam.MapTuple(lambda key, found: json.dumps({"id": key, "label": int(np.argmax(found.inference))}))
            | beam.io.WriteToText(args.output, shard_name_template="")
        )


if __name__ == "__main__":
    main()
