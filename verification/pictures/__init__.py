"""Figures of the report, one idea a file; drawn as SVG in the style of the paper's figures."""
