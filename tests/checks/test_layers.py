"""Test the import layers: each file imports only lower layers or its own package, and no import is circular."""

import ast
import functools
import graphlib
import itertools

from tests.conftest import ROOT

# The layers from top to bottom. A file belongs to the longest name that its module's name starts with; an `__init__.py`
# at a root belongs to that root. Packages on one line do not import each other.
LAYERS = """
__init__ __main__
cli
deploy.__init__ deploy.images
deploy.dataflow deploy.flink deploy.plan deploy.tpu deploy.demo
deploy.source_copy deploy.tpu.accelerators
adaptation
trainers.__init__
trainers.commands
trainers.evaluation
trainers.inference
trainers.pretraining trainers.finetuning
trainers.training_run
trainers.training_plan
trainers.run_report
trainers.training
trainers.backends
trainers.data trainers.monitoring
trainers.checkpoints trainers.optimization trainers.metrics
trainers.pretraining.options trainers.finetuning.options
trainers.options
trainers.buckets
trainers.objective trainers.errors trainers.optimization.update_rules
pipelines.__init__
pipelines.commands
pipelines.transforms
pipelines.runner
pipelines.finish_dataset
pipelines.dataset_report
pipelines.examples
pipelines.corpus
pipelines.segmentation
pipelines.cleaning pipelines.vocabulary
pipelines.dataset pipelines.sources
pipelines.formats
pipelines.instances pipelines.io
pipelines.documents
pipelines.errors
reporting
bert_model
bert_model.checkpoints
bert_model.config
tokenizer
common.command_line
common
"""
_COMPILED = {"tokenizer._native", "trainers.data._examples"}
RANKS = {name: rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split()}
_FOR_TRAINERS = "dataset errors io instances.instances formats.lines"
# The only modules that a package may import from another package, where not all lower layers are allowed. The reason is
# that a training host has no Beam.
ONLY = {
    ("trainers", "pipelines"): _FOR_TRAINERS,
    ("pipelines", "bert_model"): "checkpoints.path_contents",
    ("bert_model", "tokenizer"): "",
}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return each of our modules with those that it imports, including imports in functions and under TYPE_CHECKING."""
    roots = {name.split(".")[0] for name in RANKS} - {"__init__", "__main__", "cli"}
    paths = [path for folder in (ROOT / "beambert", *map(ROOT.joinpath, roots)) for path in folder.rglob("*.py")]
    names = (path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("beambert/") for path in paths)
    files = dict(zip((name.replace("/", ".") for name in names), paths, strict=True))

    def module_of(name: str, attribute: str) -> str | None:
        if name.split(".")[0] != "beambert":
            assert name.split(".")[0] not in roots, f"{name} is imported without beambert"
            return None
        name = name.removeprefix("beambert").removeprefix(".")
        longer = f"{name}.{attribute}".removeprefix(".")
        candidates = (longer, f"{longer}.__init__", name, f"{name}.__init__")
        module = next((module for module in candidates if module in files), None)
        assert module or name in _COMPILED, f"{name} does not exist"
        return module

    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        names: list[tuple[str, str]] = []
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names += [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path} has a relative import"
                names += [(node.module or "", alias.name) for alias in node.names]
        graph[module] = {found for name in names if (found := module_of(*name))} - {module}
    return graph


def is_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def layer_of(module: str) -> str:
    """Return the name in LAYERS that a module belongs to."""
    names = [name for name in RANKS if is_in(module, name)]
    assert names, f"{module} is in no layer: name its package in LAYERS"
    return max(names, key=len)


def errors(graph: dict[str, set[str]]) -> list[str]:
    """Return a line for each import that the layers do not allow."""
    lines = []
    for module, imported in sorted(graph.items()):
        for other in sorted(imported):
            upper, lower = layer_of(module), layer_of(other)
            if upper != lower and RANKS[upper] >= RANKS[lower]:
                lines.append(f"{module} imports {other}: {lower} is not below {upper}")
            package = other.split(".")[0]
            allowed = ONLY.get((module.split(".")[0], package))
            if allowed is not None and not any(is_in(other, f"{package}.{name}") for name in allowed.split()):
                lines.append(f"{module} imports {other}, which is not in ONLY")
    return lines


def test_no_file_imports_a_folder_without_the_package():
    """Such an import would load a module for the second time, under another name."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"beambert"}
    for path in itertools.chain.from_iterable(
        (ROOT / name).rglob("*.py") for name in ("tests", "benchmarks", "docs", "examples")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not folders & {name.split(".")[0] for name in names}, path


def test_every_import_goes_down():
    assert errors(imports()) == []


def test_no_import_is_circular():
    list(graphlib.TopologicalSorter(imports()).static_order())  # A CycleError names the files.


def test_the_lists_hold_nothing_unused():
    graph = imports()
    assert {layer_of(module) for module in graph} == RANKS.keys()
    for (package, other), names in ONLY.items():
        used = {other for module in graph if is_in(module, package) for other in graph[module]}
        for name in names.split():
            assert any(is_in(module, f"{other}.{name}") for module in used), f"{package} does not import {other}.{name}"


def test_wrong_imports_are_found():
    graph = imports()
    upward = {
        "pipelines.io.tfrecord": "pipelines.examples.statistics",
        "trainers.checkpoints.checkpoint_manager": "trainers.training.loop",
        "bert_model.config": "tokenizer.vocabulary",
        "deploy.plan.data": "deploy.tpu.job",
        "trainers.data.parsing": "pipelines.transforms.corpora",
        "tokenizer.wordpiece": "cli",
    }
    for module, other in upward.items():
        lines = errors({**graph, module: {*graph[module], other}})
        assert any(line.startswith(f"{module} imports {other}") for line in lines), lines
