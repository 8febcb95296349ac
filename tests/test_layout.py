"""The rooms of the package and what each may import, read from the source; and what lies beside the package."""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOP_LEVEL = re.compile(r"pyproject\.toml|README\.md|LICENSE|CHANGELOG\.md|condvne|configs|scripts|tests|notebooks|\..*")

# Room: what its modules may import beside themselves. A dotted name is one module of a room.
MAY_IMPORT = {
    "condvne": {"core", "errors"},
    "errors": set[str](),
    "ranks": {"errors"},
    "core": {"core", "errors", "ranks"},
    "data": {"data", "errors", "ranks"},
    "evaluation": {"evaluation", "core", "data", "errors", "ranks"},
    "tasks": {"core", "data", "errors", "evaluation", "ranks"},  # no task imports another
    "integrations": {"core", "tasks", "errors", "integrations.texts"},
    "reports": {
        "reports",
        "data.curves",
        "data.decoding",
        "data.listing",
        "data.pictures",
        "data.records",
        "data.results",
        "data.reweighting",
        "data.storage",
        "errors",
    },
    "cli": {"cli", "core", "data", "errors", "evaluation", "ranks", "tasks", "integrations", "reports"},
    "__main__": {"cli"},
}
# Each may be imported only by those below it, directly or through others.
CORE_ORDER = (
    *("errors", "core.spectral", "core.checks", "core.kernels", "core.density", "core.lanczos", "core.sketches"),
    *("core.covariance", "core.entropy", "core.inference", "core.projection", "core.diversity", "core.profiles"),
)
CORE_LIBRARIES = {"torch", "numpy", "scipy", "typing_extensions"}
CORE_EXCEPTIONS = {
    "core.tensorfiles": {"safetensors"},  # sketches are saved and rebuilt: the one place of core that knows files
    "core.tiles": {"psutil"},  # free memory decides between a stored matrix and tiles
}
HEAVY = {
    *("transformers", "sentence_transformers", "diffusers", "datasets", "open_clip", "sklearn", "matplotlib"),
    *("accelerate", "torchmetrics", "torchvision", "pandas", "lm_eval", "evaluate", "timm", "PIL"),
    *("rouge_score", "bert_score", "sacrebleu"),
}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


@dataclass(frozen=True)
class Imported:
    """One imported module, as written, and where."""

    name: str
    line: int
    in_function: bool
    for_types: bool


def imports(tree: ast.Module, package: str) -> Iterator[Imported]:
    """Every import of a module inside `package`; relative ones made absolute."""

    def walk(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Imported]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Imported(alias.name, child.lineno, in_function, for_types)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    parents = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*parents, *([base] if base else [])])
                for alias in child.names:
                    yield Imported(f"{base}.{alias.name}", child.lineno, in_function, for_types)
            else:
                function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                    yield from walk(ast.Module(child.body, []), in_function, True)
                    yield from walk(ast.Module(child.orelse, []), in_function, for_types)
                else:
                    yield from walk(child, in_function or function, for_types)

    yield from walk(tree, False, False)


@dataclass(frozen=True)
class Source:
    """A module of the package: its dotted name below `condvne` ("core.kernels"), and its imports."""

    name: str
    imported: tuple[Imported, ...]

    @property
    def room(self) -> str:
        return self.name.split(".")[0]

    def own(self, modules: Iterable[str]) -> Iterator[tuple[Imported, str]]:
        """Imports of the package itself, as module names below `condvne`; "" is the package's face."""
        known = set(modules)
        for item in self.imported:
            parts = item.name.split(".")
            if parts[0] != "condvne":
                continue
            target = next((".".join(parts[1:k]) for k in range(len(parts), 1, -1) if ".".join(parts[1:k]) in known), "")
            yield item, target

    def foreign(self) -> Iterator[tuple[Imported, str]]:
        """Imports of libraries outside the standard one, by their first name."""
        for item in self.imported:
            library = item.name.split(".")[0]
            if library != "condvne" and library not in sys.stdlib_module_names:
                yield item, library


def source(name: str, text: str, is_package: bool = False) -> Source:
    dotted = f"condvne.{name}" if name != "condvne" else name
    return Source(name, tuple(imports(ast.parse(text), dotted if is_package else dotted.rpartition(".")[0])))


def read_sources() -> dict[str, Source]:
    found = {}
    for path in sorted((ROOT / "condvne").rglob("*.py")):
        parts = path.relative_to(ROOT / "condvne").with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts) or "condvne"
        found[name] = source(name, path.read_text(encoding="utf-8"), is_package)
    return found


def misplaced(module: Source, modules: Iterable[str]) -> list[str]:
    """Imports that the table of rooms forbids."""
    allowed = MAY_IMPORT.get(module.room)
    if allowed is None:
        return [f"{module.name}: no such room"]
    wrong = []
    for item, target in module.own(modules):
        room = target.split(".")[0]
        same_module_or_task = target.split(".")[:2] == module.name.split(".")[:2]
        if not (same_module_or_task or room in allowed or target in allowed):
            wrong.append(f"{module.name}:{item.line} imports {item.name}")
    return wrong


def heavy(module: Source) -> list[str]:
    """Heavy libraries that importing the module would load; an adapter may load the one it is named after."""
    own = module.name.split(".")[-1] if module.room == "integrations" else ""
    adapted = {"trainer": "transformers"}.get(own, own)
    return [
        f"{module.name}:{item.line} imports {library} outside a function"
        for item, library in module.foreign()
        if library in HEAVY and library != adapted and not (item.in_function or item.for_types)
    ]


def beyond_core(module: Source) -> list[str]:
    """Libraries that the mathematics may not know."""
    allowed = CORE_LIBRARIES | CORE_EXCEPTIONS.get(module.name, set())
    return [
        f"{module.name}:{item.line} imports {library}"
        for item, library in module.foreign()
        if module.room == "core" and library not in allowed
    ]


def private_uses(text: str) -> list[str]:
    """Underscored names of condvne that a script takes, by import or as an attribute of something imported."""
    tree = ast.parse(text)
    bound: set[str] = set()
    wrong = []
    for item in imports(tree, ""):
        if item.name.split(".")[0] == "condvne":
            wrong += [f"{item.line}: {item.name}" for part in item.name.split(".") if part.startswith("_")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound |= {a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] == "condvne"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "condvne":
            bound |= {a.asname or a.name for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            root: ast.expr = node
            while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name) and root.id in bound:
                wrong.append(f"{node.lineno}: {ast.unparse(node)}")
    return wrong


def script_texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        lines = [line for cell in code for line in cell.split("\n") if not line.lstrip().startswith(("%", "!"))]
        yield str(path.relative_to(ROOT)), "\n".join(lines)


SOURCES = read_sources()


def test_rooms_import_only_what_they_may() -> None:
    assert len(SOURCES) > 20
    assert [wrong for module in SOURCES.values() for wrong in misplaced(module, SOURCES)] == []


def test_core_knows_only_mathematics() -> None:
    assert [wrong for module in SOURCES.values() for wrong in beyond_core(module)] == []


def test_heavy_libraries_are_imported_inside_functions() -> None:
    assert [wrong for module in SOURCES.values() for wrong in heavy(module)] == []


def test_nothing_is_pickled() -> None:
    found = [f"{m.name}:{i.line}" for m in SOURCES.values() for i in m.imported if i.name.split(".")[0] in PICKLES]
    assert found == []


def test_imports_have_no_cycles_and_core_keeps_its_order() -> None:
    graph = {
        name: {target for item, target in module.own(SOURCES) if not item.for_types and target not in ("", name)}
        for name, module in SOURCES.items()
    }
    graph.pop("condvne")  # the face imports what it shows
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert set(CORE_ORDER[:5]) < set(order)
    reached: dict[str, set[str]] = {}
    for name in order:
        reached[name] = set().union(*({n} | reached[n] for n in graph.get(name, ())))
    for k, name in enumerate(CORE_ORDER):
        assert reached.get(name, set()).isdisjoint(CORE_ORDER[k + 1 :]), name


def test_scripts_and_notebooks_use_public_names() -> None:
    found = [f"{name}:{wrong}" for name, text in script_texts() for wrong in private_uses(text)]
    assert found == []


def test_top_level_holds_only_what_belongs_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    assert {"pyproject.toml", "condvne"} <= top
    assert [name for name in sorted(top) if not TOP_LEVEL.fullmatch(name)] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core.kernels", "from condvne.data.records import read"),
        ("core.kernels", "def f():\n    import condvne.tasks.gap"),
        ("core.kernels", "import condvne"),
        ("core.kernels", "from .. import cli"),
        ("data.records", "from condvne.core.kernels import Kernel"),
        ("tasks.gap", "from condvne.tasks.score import score_table"),
        ("tasks.gap", "from condvne.tasks import score"),
        ("reports.page", "from condvne.core import entropy"),
        ("reports.page", "from condvne.data.embeddings import embed"),
        ("integrations.trainer", "from condvne.data import records"),
        ("errors", "from condvne.core import kernels"),
        ("condvne", "from condvne.cli import main"),
        ("attic.old", "import math"),
    ],
)
def test_the_check_of_rooms_sees(name: str, text: str) -> None:
    modules = {*SOURCES, "tasks.gap", "tasks.score", "cli", "data.embeddings", "data.records"}
    assert misplaced(source(name, text), modules)


def test_a_task_may_have_several_modules() -> None:
    modules = {"tasks.guidance", "tasks.guidance.history", "tasks.guidance.push", "tasks.gap"}
    assert not misplaced(source("tasks.guidance.push", "from condvne.tasks.guidance.history import History"), modules)
    assert misplaced(source("tasks.guidance.push", "from condvne.tasks.gap import measure_gap"), modules)


@pytest.mark.parametrize(
    ("name", "text", "seen"),
    [
        ("data.encoders", "import sentence_transformers", True),
        ("data.encoders", "from sklearn.cluster import KMeans", True),
        ("data.encoders", "if True:\n    import matplotlib.pyplot as plt", True),
        ("data.encoders", "class A:\n    import transformers", True),
        ("data.encoders", "def f():\n    import transformers", False),
        ("data.encoders", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import transformers", False),
        ("data.encoders", "if TYPE_CHECKING:\n    pass\nelse:\n    import transformers", True),
        ("integrations.torchmetrics", "from torchmetrics import Metric", False),
        ("integrations.trainer", "from transformers import Trainer", False),
        ("integrations.trainer", "import diffusers", True),
    ],
)
def test_the_check_of_heavy_libraries_sees(name: str, text: str, seen: bool) -> None:
    assert bool(heavy(source(name, text))) == seen


def test_the_check_of_core_libraries_sees() -> None:
    assert beyond_core(source("core.kernels", "def f():\n    import matplotlib"))
    assert beyond_core(source("core.kernels", "import safetensors"))
    assert not beyond_core(source("core.kernels", "import torch\nimport math\nfrom scipy import stats"))
    assert not beyond_core(source("data.records", "import zstandard"))


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("import condvne as cv\ncv.entropy(x)\ncv.__version__", False),
        ("import condvne as cv\ncv._helper(x)", True),
        ("import condvne.core.kernels\ncondvne.core.kernels._unit_rows(x)", True),
        ("from condvne.core.kernels import _unit_rows", True),
        ("from condvne import Gaussian\nGaussian(1.0)._norm", True),
        ("import torch\ntorch._C", False),
    ],
)
def test_the_check_of_private_names_sees(text: str, seen: bool) -> None:
    assert bool(private_uses(text)) == seen
