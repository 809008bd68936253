"""The configuration of Sphinx. ``make docs`` builds; build.py says in which order."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = html_title = "cronsensus"
author = "The cronsensus authors"
copyright = author  # noqa: A001
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "sphinx_copybutton", "hooks"]
templates_path = ["templates"]
myst_heading_anchors = 4
myst_heading_anchors_html_ids = True  # as GitHub's, in Chinese too

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False

# Only the prompt's commands are copied, not what they print.
copybutton_prompt_text = "$ "
copybutton_copy_empty_lines = False

html_theme = "furo"
html_favicon = "../src/cronsensus/dashboard/static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_index = False
html_show_sourcelink = html_copy_source = html_show_sphinx = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
