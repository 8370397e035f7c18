"""The package as a whole: its version, its imports and their direction."""

import ast
import os
import re
import socket
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import keras
import pytest

import keras_bft

PACKAGE = Path(keras_bft.__file__).parent
REPOSITORY = Path(__file__).parents[1]
BACKENDS = {"tensorflow", "jax", "torch"}
EXTRAS = {
    "huggingface_hub",
    "jinja2",
    "keras_hub",
    "matplotlib",
    "pandas",
    "polars",
    "pyarrow",
    "safetensors",
    "tokenizers",
    "transformers",
    "triton",
}
# What the decoder's classes are subclasses of, from the extra `llm`.
DECODER = {"jinja2", "keras_hub"}
# What the kernels of `ops/_gpu` are written in. They are imported when used.
KERNELS = {"jax", "torch", "triton"}

# The packages of the library that each one may import, itself aside.
MAY_IMPORT = {
    "ops": set(),
    "layers": {"ops"},
    "losses": {"layers", "ops"},
    "data": {"layers", "ops"},
    "evaluation": {"data", "layers", "losses", "ops"},
    "diagnostics": {"evaluation", "layers"},
    "models": {"data", "evaluation", "layers", "losses", "ops"},
    "training": {"diagnostics", "layers"},
}
SHARED = {
    "_backend",
    "_extras",
    "_json_files",
    "_packed_files",
    "_version",
    "typing",
}


def run_without(modules, code):
    """Runs code in a new process to which the modules seem not installed."""
    block = "import sys\nsys.modules.update(dict.fromkeys({}))\n"
    environment = os.environ | {"KERAS_BACKEND": keras.backend.backend()}
    result = subprocess.run(
        [sys.executable, "-c", block.format(sorted(modules)) + code],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def imports_of(path):
    """Returns the absolute names of the modules that a source file imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "keras_bft":
                names += [f"keras_bft.{alias.name}" for alias in node.names]
            else:
                names.append(node.module)
    return names


def imports_of_package(package):
    return [
        (path, name)
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for name in imports_of(path)
    ]


def test_the_version_stands_in_one_place():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert "version" not in project["project"]
    source = (PACKAGE / "_version.py").read_text()
    assert f'"{keras_bft.__version__}"' in source
    assigned = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^__version__ =", path.read_text(), flags=re.MULTILINE)
    ]
    assert assigned == ["_version.py"]


def test_the_version_heads_the_changelog():
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\]", changelog, flags=re.MULTILINE)
    assert headings[0] == keras_bft.__version__


def test_the_installed_distribution_has_the_version():
    try:
        installed = metadata.version("keras-bft")
    except metadata.PackageNotFoundError:
        pytest.skip("keras-bft is not installed")
    assert installed == keras_bft.__version__


def test_only_keras_and_numpy_are_required():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    required = [
        re.match(r"[\w-]+", requirement)[0]
        for requirement in project["project"]["dependencies"]
    ]
    assert sorted(required) == ["keras", "numpy"]


def test_imports_with_nothing_but_keras_and_the_chosen_backend():
    backend = keras.backend.backend()
    output = run_without(
        BACKENDS - {backend} | EXTRAS,
        "import keras_bft, keras\nprint(keras.backend.backend())",
    )
    assert output[-1] == backend


def test_a_missing_backend_is_named():
    backend = keras.backend.backend()
    output = run_without(
        {backend},
        "try:\n    import keras_bft\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error, error.name, sep='\\n')",
    )
    assert output[-1] == backend
    text = " ".join(output)
    assert f"runs on {backend}, which is not installed" in text
    assert f"Received: KERAS_BACKEND='{backend}'" in text


def test_importing_adds_no_module_of_another_package():
    # Keras imports some optional packages itself, which is not ours to change.
    output = run_without(
        set(),
        "import keras\nbefore = set(sys.modules)\nimport keras_bft\n"
        "print(*{n.split('.')[0] for n in set(sys.modules) - before})",
    )
    assert "keras_bft" in output
    assert not set(output) & (BACKENDS | EXTRAS)


def test_imports_without_a_network():
    output = run_without(
        set(),
        """
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise PermissionError(event)

sys.addaudithook(refuse)
import importlib, pkgutil, keras_bft

for module in pkgutil.walk_packages(keras_bft.__path__, "keras_bft."):
    if "integrations" in module.name:
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        # An extra that is not installed.
        assert not error.name.startswith("keras_bft"), error
print("imported")
""",
    )
    assert output[-1] == "imported"


def test_no_test_reaches_the_network():
    # An address that is nobody's.
    with pytest.raises(PermissionError, match="192.0.2.1"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="blocks TensorFlow"
)
def test_trains_without_tensorflow():
    output = run_without(
        BACKENDS - {keras.backend.backend()} | EXTRAS,
        """
import keras
import numpy as np
import keras_bft

inputs = keras.Input((5, 4))
layer = keras_bft.layers.BFTLayer(num_heads=2, feed_forward_dim=8)
model = keras.Sequential([inputs, layer])
model.compile(keras.optimizers.Adam(0.01), loss="mse")
x = np.random.default_rng(0).normal(size=(8, 5, 4)).astype("float32")
losses = model.fit(x, 0 * x, epochs=5, verbose=0).history["loss"]
print(losses[-1] < losses[0], sys.modules["tensorflow"])
""",
    )
    assert output[-2:] == ["True", "None"]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_one_way(package):
    imports = imports_of_package(package)
    assert imports
    allowed = MAY_IMPORT[package] | SHARED | {package}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path, name in imports
        if name.startswith("keras_bft")
        and (name.split(".") + [""])[1] not in allowed
    ]
    assert not wrong


def test_ops_import_keras_alone():
    outside = {
        name.split(".")[0]
        for path, name in imports_of_package("ops")
        if name.split(".")[0] not in sys.stdlib_module_names | {"keras_bft"}
        and not ("_gpu" in path.parts and name.split(".")[0] in KERNELS)
    }
    assert outside == {"keras"}


def test_no_source_imports_more_than_keras_and_numpy():
    # `integrations` is for other libraries; extras go through `import_extra`,
    # but for those whose classes the decoder's are subclasses of.
    allowed = sys.stdlib_module_names | {"keras", "keras_bft", "numpy"}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "integrations" not in path.parts
        for name in imports_of(path)
        if name.split(".")[0] not in allowed
        and not ("llama" in path.parts and name.split(".")[0] in DECODER)
        and not ("_gpu" in path.parts and name.split(".")[0] in KERNELS)
        or name.startswith("keras_bft.integrations")
    ]
    assert not wrong
