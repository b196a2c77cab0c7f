"""What a type checker says of a user's script."""

import ast
from pathlib import Path

import sparsity

STUB = Path(sparsity.__file__).with_suffix(".pyi")


def test_the_stub_names_what_the_package_has():
    tree = ast.parse(STUB.read_text())
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
    assert {name.asname for each in imports for name in each.names} == {*sparsity.__all__}
    listed = next(x.value for x in tree.body if isinstance(x, ast.Assign))
    assert {*ast.literal_eval(listed)} == {*sparsity.__all__}
    for each in imports:  # each is the thing that the package gives under its name
        for name in each.names:
            scope: dict = {}
            exec(ast.unparse(each), scope)
            assert scope[name.asname] is getattr(sparsity, name.asname)
