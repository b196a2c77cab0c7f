"""How Sphinx builds the site: from the repository's root, so that every link is true there too."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import mathjax
import pages
from docstrings import as_in_source, as_rst, without_addresses

import sparsity

project = "sparsity"
author = "The sparsity authors"
copyright = author
version = release = sparsity.__version__
html_title = f"sparsity {version}"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
root_doc = "docs/index"
include_patterns = [
    *("docs/*.md", "docs/generated/*.md", "notebooks/*.ipynb"),
    *("benchmarks/results/*.md", "experiments/results/*.md"),
    *("CONTRIBUTING.md", "CHANGELOG.md"),
]
exclude_patterns = [".*", "out", "build", "dist", "shared", "sparsity", "tests", "**/__pycache__"]
nitpicky = True
nitpick_ignore_regex = [
    # Types of other packages, whose indexes are not at hand, and of the inside of this one.
    (
        "py:.*",
        r"(typing|collections|concurrent|os|pathlib|np|jnp)\..*|"
        r"(numpy|jax|xarray|pandas|sympy|torch|matplotlib)\..*",
    ),
    ("py:class", rf"(Path|Axes|(sparsity\..*\.)?(_\w+|{'|'.join(pages.INNER)}))"),
]

# The notebooks are shown as they are committed; tests run them.
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # scripts of another host
myst_enable_extensions = ["amsmath", "dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True  # $$ inside a paragraph, as in notebooks

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "sphinx_book_theme"
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "navbar_persistent": [],  # the sidebar has the one search box
}
html_context = {"default_mode": "auto"}
html_static_path = ["_static", str(mathjax.folder())]
html_css_files = ["site.css"]
html_extra_path = ["_root", "generated/root"]
html_copy_source = html_show_sourcelink = False
mathjax_path = "tex-svg.js"


def setup(app):
    """The generated pages first; docstrings are plain words, not reStructuredText."""
    pages.write(HERE / "generated")
    for function in (getattr(sparsity, name) for name in sparsity.__all__):
        as_in_source(function.__init__ if isinstance(function, type) else function)
    app.connect("autodoc-process-docstring", as_rst, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", without_addresses)
