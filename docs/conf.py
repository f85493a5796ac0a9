"""Settings of the documentation: `make docs` builds docs/_build/html; every warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import hgp_ref  # noqa: E402

project = "hgp_ref"
author = "the authors of hgp_ref"
version = release = hgp_ref.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "reference",  # in docs/_ext
    "pages",  # in docs/_ext
]
exclude_patterns = [
    "_build",
    "figures/README.md",
    "measured",
    "notes",
    "gallery",
    "browser",
    "generated/gallery/**/*.ipynb",
    "**/*.py.md5",
]
templates_path = ["_templates"]
default_role = "py:obj"  # `name` links where there is a page of that name and is plain otherwise
nitpicky = True
nitpick_ignore_regex = [("py:obj", ".*"), ("py:class", ".*"), ("py:data", ".*")]  # annotations, and the role above

# The API: docs/_ext/reference.py writes a page for every public name.
autosummary_generate = False
autodoc_docstring_signature = False  # a first line such as "f(x) = |x|" is a sentence, not a signature
autodoc_typehints = "none"  # numpydoc's Parameters say it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
viewcode_line_numbers = True

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the gallery's settings hold an object that cannot be stored

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "generated/gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "reference_url": {"hgp_ref": None},
    "doc_module": ("hgp_ref",),
    "download_all_examples": False,
    "copyfile_regex": "",
    "min_reported_time": 5,
    "show_memory": False,
    "thumbnail_size": (560, 392),
    "capture_repr": (),  # what is printed is shown, not the value of a last line
    "write_computation_times": False,  # its page would ask three hosts for scripts
    "remove_config_comments": True,
    "plot_gallery": True,
    "matplotlib_animations": False,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("pages.gallery_style",),
    "reset_modules_order": "before",
}

html_theme = "pydata_sphinx_theme"
html_title = "hgp_ref"
html_math_renderer = "mathml"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static", "generated/static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
# Theory, tutorials and the API have a sidebar with their pages; others use the width.
html_sidebars = {page: [] for page in ("[!t]*", "experiments/*", "generated/*")}
html_theme_options = {
    "logo": {"text": "hgp_ref"},
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "collapse_navigation": True,  # a page of the API carries the names of its own module only: a third of the size
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
html_context = {"default_mode": "auto"}
copyright = "the authors of hgp_ref, MIT licence"
