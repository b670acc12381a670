"""What counts as a statement of the lane, and which statements need not be reached."""

from bench.faults.reached import EXCEPTIONS, Exceptions, Statement, exceptions, statements


def test_statements_are_those_in_functions() -> None:
    known = {each for by_line in statements().values() for each in by_line.values()}
    functions = {(each.module, each.function) for each in known}
    assert ("step.py", "step") in functions
    assert ("state.py", "Lane.__repr__") in functions
    assert not [each for each in known if each.text.startswith('"""')]


def test_an_entry_covers_a_module_a_function_or_a_statement() -> None:
    statement = Statement("a.py", "f", "return 1")
    for entry in ("a.py", "a.py f", "a.py f: return 1"):
        assert Exceptions(frozenset({entry})).covers(statement)
    assert not Exceptions(frozenset({"a.py g", "b.py", "a.py f: return 2"})).covers(statement)


def test_an_entry_without_such_a_statement_is_needless() -> None:
    listed = Exceptions(frozenset({"a.py f", "a.py g"}))
    assert listed.needless([Statement("a.py", "f", "return 1")]) == ["a.py g"]


def test_the_listed_statements_exist() -> None:
    known = [each for by_line in statements().values() for each in by_line.values()]
    assert exceptions(EXCEPTIONS.read_text()).needless(known) == []
