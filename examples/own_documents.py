"""Read documents from a table, change them with a DoFn of your own, and write pretraining data.

    python examples/own_documents.py --input 'articles/*.parquet' --output data --vocab_size 8000

The table has the columns "text" and "title"; rows without text are left out. Flags of Beam, such as
--runner, may follow.
"""

import argparse
import dataclasses
import re
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beambert.pipelines.documents import Document
from beambert.pipelines.transforms.documents import CleanDocuments, RejectDocuments, SegmentSentences
from beambert.pipelines.transforms.examples import CreatePretrainingExamples, WriteShards
from beambert.pipelines.transforms.rows import RowsToDocuments
from beambert.pipelines.transforms.vocabulary import LearnWordPieceVocabulary

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")


class RedactAddresses(beam.DoFn):
    """Replace e-mail addresses by [address]."""

    def process(self, document: Document) -> Iterator[Document]:
        """Yield the changed document."""
        paragraphs = [ADDRESS.sub("[address]", paragraph) for paragraph in document.paragraphs]
        yield dataclasses.replace(document, paragraphs=paragraphs)


def main() -> None:
    """Run the pipeline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="Parquet files or a quoted pattern")
    parser.add_argument("--output", required=True, help="new directory")
    parser.add_argument("--vocab_size", type=int, default=8000, help="size of the vocabulary")
    args, beam_flags = parser.parse_known_args()
    with beam.Pipeline(options=PipelineOptions(beam_flags)) as pipeline:
        rows = pipeline | beam.io.ReadFromParquet(args.input, columns=["text", "title"])
        documents = (
            rows
            | RowsToDocuments(text="text", title="title", on_bad_record="skip")
            | beam.ParDo(RedactAddresses()).with_output_types(Document)
            | CleanDocuments()
            | SegmentSentences("en")
            | RejectDocuments()
        )
        vocabulary = documents | LearnWordPieceVocabulary(args.vocab_size)
        examples = documents | CreatePretrainingExamples(vocabulary)
        _ = examples | WriteShards(args.output, vocabulary)


if __name__ == "__main__":
    main()
