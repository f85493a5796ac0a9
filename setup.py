"""The long description of the package; pyproject.toml has everything else.

Links of README.md into the repository are dead on a package index. They become absolute if pyproject.toml has a URL
called Repository, as `URL/raw/vVERSION/file` and `URL/blob/vVERSION/file`. Without one, links become plain text and
pictures are left out.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
INSIDE = r"(?!https?://|mailto:|#)"  # what follows is no address of its own


def long_description(readme: str, repository: str, version: str) -> str:
    """`readme` for readers who do not have the repository."""

    def picture(match: re.Match[str]) -> str:
        return f"{match[1]}{repository}/raw/v{version}/{match[2]}{match[3]}" if repository else ""

    def link(match: re.Match[str]) -> str:
        return f"[{match[1]}]({repository}/blob/v{version}/{match[2]})" if repository else match[1]

    readme = re.sub(rf'(<img [^>]*?src="){INSIDE}([^"]+)("[^>]*>)', picture, readme)
    readme = re.sub(rf"(!\[[^]]*\]\(){INSIDE}([^)\s]+)(\))", picture, readme)
    return re.sub(rf"(?<!!)\[([^][]+|!\[[^]]*\]\([^)]*\))\]\({INSIDE}([^)\s]+)\)", link, readme)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project["urls"].get("Repository", "").rstrip("/")
    setup(
        long_description=long_description(
            (HERE / "README.md").read_text(encoding="utf-8"), repository, project["version"]
        ),
        long_description_content_type="text/markdown",
    )
