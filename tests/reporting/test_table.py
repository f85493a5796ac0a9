"""One table in four forms."""

from __future__ import annotations

from reporting.table import Table, padded, width


def test_tables_in_three_forms():
    table = Table("", ("what", "n"), (("a, b", "1"), ("c", "22")))
    assert table.text().splitlines() == ["what   n", "a, b   1", "c     22"]
    assert table.csv().splitlines() == ["what,n", '"a, b",1', "c,22"]
    assert table.markdown().splitlines()[1] == "| --- | --- |"


def test_a_page_gets_escaped_cells_and_numbers_to_the_right():
    page = Table("a < b", ("what", "n"), [["x & y", "1"]]).html()
    assert page == (
        "<h3>a &lt; b</h3><table><thead><tr><th>what</th><th class='number'>n</th></tr></thead>"
        "<tbody><tr><td class='first'>x &amp; y</td><td class='number' data-label='n'>1</td></tr></tbody></table>"
    )


def test_marks_over_letters_take_no_column():
    assert width("x\u0304") == 1 and padded("x\u0304", 3) == "x\u0304  " and padded("1", 3, right=True) == "  1"
    lines = Table("", ("name", "n"), (("H\u0304", "1"), ("long", "2"))).text().splitlines()
    assert lines[1] == "H\u0304     1" and lines[2] == "long  2"
