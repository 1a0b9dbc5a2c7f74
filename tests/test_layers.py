"""Arrows between files and folders of the package: none runs back up, no circle of files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FROM = re.compile(r"^[ \t]*from\s+([.\w]+)\s+c?import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE)
WHOLE = re.compile(r"^[ \t]*c?import\s+(skdpm[.\w]*)", re.MULTILINE)


def _modules():
    """Files of each module: a kernel has a .pyx and perhaps a .pxd."""
    modules = {}
    for suffix in ("py", "pyx", "pxd"):
        for path in sorted((ROOT / "skdpm").rglob(f"*.{suffix}")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules.setdefault(name, []).append(path)
    return modules


def _imports(text, package):
    """Names that a file of `package` imports or cimports, as absolute dotted names."""
    for source, names in FROM.findall(text):
        dots = len(source) - len(source.lstrip("."))
        if dots:
            base = package.split(".")[: len(package.split(".")) - (dots - 1)]
            source = ".".join([*base, source[dots:]]).rstrip(".")
        for name in re.findall(r"\w+", re.sub(r"#.*|\bas\s+\w+", "", names)):
            yield f"{source}.{name}", source
    for source in WHOLE.findall(text):
        yield source, source


def arrows(modules):
    """(importing module, imported module) for all files, imports within functions included."""
    found = set()
    for name, paths in modules.items():
        for path in paths:
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            for exact, source in _imports(path.read_text(), package):
                target = exact if exact in modules else source
                if target in modules and target != name:
                    found.add((name, target))
    return found


def circle(edges):
    """Nodes of one circle of directed `edges`, or None."""
    targets = {}
    for a, b in edges:
        targets.setdefault(a, set()).add(b)
    done = set()

    def visit(node, path):
        if node in path:
            return path[path.index(node) :]
        if node not in done:
            for target in sorted(targets.get(node, ())):
                if found := visit(target, [*path, node]):
                    return found
            done.add(node)
        return None

    return next((c for node in sorted(targets) if (c := visit(node, []))), None)


def _folder(module, modules):
    """Folder of a module. Modules at the root of the package stand for themselves."""
    folder = modules[module][0].parent.relative_to(ROOT).as_posix()
    return module if folder == "skdpm" else folder


def test_files_import_in_one_direction():
    modules = _modules()
    edges = arrows(modules)
    assert ("skdpm.mixture.base", "skdpm._estimator") in edges
    assert ("skdpm.mixture.samplers._gibbs", "skdpm.mixture.state._state") in edges
    assert circle(edges) is None


def test_folders_import_in_one_direction():
    modules = _modules()
    edges = {(_folder(a, modules), _folder(b, modules)) for a, b in arrows(modules)}
    assert circle({(a, b) for a, b in edges if a != b}) is None


def test_nothing_imports_the_variants_of_papers():
    modules = _modules()
    into = {(a, b) for a, b in arrows(modules) if b.startswith("skdpm.papers")}
    assert ("skdpm.papers.smc", "skdpm.papers._annealed") in into
    assert {a for a, b in into if not a.startswith("skdpm.papers")} == set()


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([("a", "b"), ("b", "c"), ("a", "c")], None),
        ([("a", "b"), ("b", "c"), ("c", "b")], ["b", "c"]),
    ],
)
def test_circles_are_found(edges, expected):
    assert circle(edges) == expected
