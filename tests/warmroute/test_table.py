from warmroute.table import columns


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns(("id", "role"), [("a", "reader"), ("long", "")]) == "id    role\na     reader\nlong"


def test_no_rows_leave_the_heads() -> None:
    assert columns(("id", "role"), []) == "id  role"
