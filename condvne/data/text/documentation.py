"""English documentation that an installation of Python carries: the topics of `help()` and docstrings.

Docstrings are read from source files, without importing the modules; those of compiled modules are therefore absent.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import logging
import os
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from condvne.errors import ConfigError

_TEST_FOLDERS = frozenset({"test", "tests", "idle_test", "__pycache__"})
# no documentation for readers, or copies of the topics that come first
_UNREAD_MODULES = frozenset({"antigravity", "idlelib", "lib2to3", "pydoc_data", "test", "this", "turtledemo"})
_log = logging.getLogger(__name__)
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def installed_documentation(packages: Sequence[str], *, standard_library: bool) -> Iterator[tuple[str, str]]:
    """(id, text) of every distinct text: topics, then the standard library, then the packages, in a fixed order.

    Ids are "topics:assert" for topics and dotted names ("json.dumps") for docstrings of modules, classes, functions
    and methods; a name that is defined again has "@2" and so on behind it. Files that are not valid Python are left
    out and logged.

    Raises ConfigError for a package that is not installed or has no Python source, and for a Python without topics.
    """
    sources = [(name, _package_source(name)) for name in packages]
    if standard_library:
        sources = [*_standard_library(), *sources]
    texts = _topics() if standard_library else iter(())
    seen_texts: set[bytes] = set()
    seen_ids: Counter[str] = Counter()
    for candidates in (texts, *(_docstrings(name, source) for name, source in sources)):
        for name, text in candidates:
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if not text.strip() or digest in seen_texts:
                continue
            seen_texts.add(digest)
            seen_ids[name] += 1
            yield (name if seen_ids[name] == 1 else f"{name}@{seen_ids[name]}"), text


def _topics() -> Iterator[tuple[str, str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ConfigError(
            "corpus.standard_library: this Python has no pydoc_data.topics; set it to false or use a full installation."
        ) from error
    for name in sorted(topics):
        yield f"topics:{name}", topics[name]


def _standard_library() -> list[tuple[str, Path]]:
    folder = Path(sysconfig.get_path("stdlib"))
    names = sorted(sys.stdlib_module_names - _UNREAD_MODULES)
    found = [(name, path) for name in names for path in (folder / name, folder / f"{name}.py") if path.exists()]
    if not found:
        raise ConfigError(f"corpus.standard_library: no Python source lies in {folder}; set it to false.")
    return found


def _package_source(name: str) -> Path:
    """Folder or file of a package or module, found without importing it."""
    top, *inner = name.split(".")
    spec = importlib.util.find_spec(top) if top.isidentifier() else None
    if spec is None:
        raise ConfigError(f"corpus.packages: {name!r} is not installed; install it or take it out of the list.")
    roots = [Path(location) for location in spec.submodule_search_locations or ()]
    candidates = [path for root in roots for path in (root.joinpath(*inner), root.joinpath(*inner).with_suffix(".py"))]
    if not roots and not inner and spec.origin:
        candidates = [Path(spec.origin)]
    for path in candidates:
        if path.is_dir() or (path.suffix == ".py" and path.is_file()):
            return path
    raise ConfigError(f"corpus.packages: {name!r} has no Python source; take it out of the list.")


def _docstrings(name: str, source: Path) -> Iterator[tuple[str, str]]:
    for module, file in _source_files(name, source):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the parser warns of other people's escape sequences
                tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, RecursionError) as error:
            _log.info("%s is not valid Python (%s) and is left out.", file, error)
            continue
        yield from _docstrings_of(tree, module)


def _source_files(name: str, source: Path) -> Iterator[tuple[str, Path]]:
    if source.is_file():
        yield name, source
        return
    for folder, subfolders, files in os.walk(source):
        subfolders[:] = sorted(s for s in subfolders if s not in _TEST_FOLDERS)
        parts = [name, *Path(folder).relative_to(source).parts]
        for file in sorted(f for f in files if f.endswith(".py")):
            stem = file.removesuffix(".py")
            yield ".".join(parts if stem == "__init__" else [*parts, stem]), Path(folder, file)


def _docstrings_of(node: ast.Module | _Definition, name: str) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node, clean=True)
    if text:
        yield name, text
    if isinstance(node, ast.Module | ast.ClassDef):
        for child in _definitions(node):
            yield from _docstrings_of(child, f"{name}.{child.name}")


def _definitions(node: ast.AST) -> Iterator[_Definition]:
    """The classes and functions directly within a node, also those inside `if`, `try`, `with` at its level."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler):
            yield from _definitions(child)
