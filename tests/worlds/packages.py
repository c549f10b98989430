"""Packages: installed from a folder by pip, without a network and without a build backend."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

MONEY = Path(__file__).parents[2] / "examples" / "plugin-money"


def build_wheel(source, folder, **changes):
    """The wheel of a package whose modules are in ``src``; ``changes`` replaces texts in it."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    info = f"{name}-{version}.dist-info"
    points = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in given.items())
        for group, given in project["entry-points"].items()
    )
    files = {
        each.relative_to(source / "src").as_posix(): each.read_text()
        for each in sorted((source / "src").rglob("*.py"))
    }
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in (*files.items(), (f"{info}/RECORD", record)):
            for old, new in changes.get("replace", {}).items():
                text = text.replace(old, new)  # noqa: PLW2901
            packed.writestr(path, text)
    return wheel


def install(source, target, **changes):
    """Install a package into a folder, which programs find through PYTHONPATH."""
    target.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(source, target.parent, **changes)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--disable-pip-version-check", "--no-compile", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True, timeout=120)
    return target
