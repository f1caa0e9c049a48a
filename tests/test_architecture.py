"""Data flow one way: an import at module level never points from an earlier stage to a later one."""

import ast
from pathlib import Path

import recbole_hyper

ROOT = Path(recbole_hyper.__file__).parent

# a stage may import its own and earlier ones
STAGES = [
    {"components", "compat", "errors", "files", "kernels", "keys", "matmul", "recbole_keys", "svd", "yaml_files"},
    {"config_checks", "config_parts", "geometry"},
    {"config"},
    {"data", "types", "hyperbolic", "curvature"},
    {"losses", "encoders", "protocols"},
    {"functional", "evaluation"},
    {"models"},
    {"training"},
    {"quick_start", "finished", "evaluate", "prefix"},
    {"sweep"},
    {"report"},
    {"commands"},
    {"cli"},
    {"__init__", "__main__"},
]
STAGE_OF = {name: stage for stage, names in enumerate(STAGES) for name in names}
# read lazily by the package itself
ALWAYS_ALLOWED = {"__init__": {"compat"}}


def part(module: list[str]) -> str:
    return module[1] if len(module) > 1 else "__init__"


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recbole_hyper":
            module = str(node.module).split(".")
            found |= {part([*module, alias.name]) if len(module) == 1 else part(module) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {part(alias.name.split(".")) for alias in node.names if alias.name.startswith("recbole_hyper")}
    return found


def test_no_arrow_points_back() -> None:
    files = list(ROOT.rglob("*.py"))
    assert len(files) > 60
    wrong = []
    for file in files:
        own = part(["recbole_hyper", *file.relative_to(ROOT).with_suffix("").parts])
        assert own in STAGE_OF, f"{own} has no stage in this test"
        for other in imports(file) - ALWAYS_ALLOWED.get(own, set()):
            if STAGE_OF[other] > STAGE_OF[own]:
                wrong.append(f"{file.relative_to(ROOT)} imports {other}")
    assert not wrong


def test_only_compat_patches_other_packages() -> None:
    """Assignments to attributes of imported recbole, numpy, pandas, scipy or torch modules stand in compat.py only."""
    wrong = []
    for file in ROOT.rglob("*.py"):
        if file.name == "compat.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        hosts = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name.split(".")[0] in ("recbole", "numpy", "pandas", "scipy")
        }
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                base = target
                while isinstance(base, ast.Attribute):
                    base = base.value
                if isinstance(target, ast.Attribute) and isinstance(base, ast.Name) and base.id in hosts:
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    # the trainer lends RecBole's trainer another tensorboard writer while it is built, and gives it back
    assert [entry for entry in wrong if not entry.startswith("training/trainer.py")] == []


def test_what_is_compiled_stands_in_kernels() -> None:
    """numba is imported in kernels/ only, where every file names its plain twin and what it is kept for."""
    for file in ROOT.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        modules = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        compiled = any(name.split(".")[0] == "numba" for name in modules)
        assert not compiled or file.parent == ROOT / "kernels", file
        if compiled:
            description = ast.get_docstring(tree) or ""
            assert "Plain twin: " in description, file
            assert "Kept for: " in description, file
