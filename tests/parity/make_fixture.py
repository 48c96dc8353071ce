"""Write tests/fixtures/hugging_face: tiny models as transformers saves them, and their outputs in transformers.

Run it in the environment of `make test-parity`: .venv-parity/bin/python tests/parity/make_fixture.py
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))
from tiny_models import MODELS, outputs, random_inputs, random_model, write_vocabulary

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"


def save(model: transformers.BertPreTrainedModel, directory: Path, how: str) -> None:
    """Save a model in one of the formats in which models are published."""
    if "bfloat16" in how:
        model = model.to(torch.bfloat16)
    if "float16" in how.split():
        model = model.to(torch.float16)
    if "pytorch_model.bin" in how:
        model.config.save_pretrained(directory)
        torch.save(model.state_dict(), directory / "pytorch_model.bin")
    else:
        model.save_pretrained(directory, max_shard_size="10KB" if how == "sharded" else "1GB")


def main() -> None:
    """Write all models and outputs again."""
    shutil.rmtree(FIXTURES, ignore_errors=True)
    recorded = {}
    for name, (_, _, how) in MODELS.items():
        directory = FIXTURES / name
        directory.mkdir(parents=True)
        model = random_model(name)
        model.config.architectures = [type(model).__name__]
        save(model, directory, how)
        inputs = random_inputs(name)
        # Weights saved with 16 bits keep their rounded values, but the arithmetic has 32 bits.
        recorded[name] = {**inputs, **outputs(model.float(), inputs)}
        if name.startswith("pretraining"):
            encoded = outputs(model.bert, inputs)
            recorded[name] |= {key: encoded[key] for key in ("last_hidden_state", "pooler_output")}
        if name == "classification":
            write_vocabulary(FIXTURES)
            tokenizer = transformers.BertTokenizer(str(FIXTURES / "vocab.txt"), do_lower_case=False)
            tokenizer.save_pretrained(directory)
        else:
            write_vocabulary(directory)
    (FIXTURES / "vocab.txt").unlink()
    flat = {f"{name}/{key}": value for name, values in recorded.items() for key, value in values.items()}
    np.savez_compressed(FIXTURES / "outputs.npz", **flat)


if __name__ == "__main__":
    main()
