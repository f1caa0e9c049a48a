"""Ships the top-level properties/ folder inside the package, and files of other kinds than Python.

Everything else is in pyproject.toml, which has no way to take a package from a folder of another name.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["recbole_hyper*"]), "recbole_hyper.properties"],
    package_dir={"recbole_hyper.properties": "properties"},
    package_data={
        "recbole_hyper": ["py.typed"],
        "recbole_hyper.properties": ["**/*.yaml"],
        "recbole_hyper.report": ["page.html"],
        "recbole_hyper.runs": ["card.md"],
        "recbole_hyper.serving.page": ["*.html", "*.js"],
    },
)
