"""Small wrong changes of a module, one at a time: what a test should notice.

Comparisons, arithmetic, numbers, conditions, returned values and statements are changed in the syntax tree. Text is
left alone: docstrings, messages, annotations, decorators and what only type checkers read. So are tables of figures
that were read somewhere, of TABLE numbers or more: a test could only repeat them.
"""

import ast
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
AROUND = 24  # characters told on both sides of a change
TABLE = 20
SKIPPED = (ast.JoinedStr, ast.Import, ast.ImportFrom)
Change = Callable[[Any], ast.AST]  # a node of the kind that it was made for, to its mutant


class Site(NamedTuple):
    """A node that can be changed: in which function and statement, and how."""

    function: str
    statement: ast.AST
    node: ast.AST
    change: Change

    def changed(self, tree: ast.AST) -> ast.AST:
        """Return a copy of a tree that has the node, with the node changed."""
        copies: dict[int, Any] = {}
        copied = copy.deepcopy(tree, copies)
        old = copies[id(self.node)]
        return ast.fix_missing_locations(_Replace(old, ast.copy_location(self.change(old), old)).visit(copied))


class Mutant(NamedTuple):
    """A module with one change: the function, its statement before and after in one line each."""

    function: str
    before: str
    after: str
    module: ast.Module
    site: Site

    @property
    def name(self) -> str:
        """The change without a line number, which would move."""
        return f"{self.function}: {self.before} -> {self.after}"

    @property
    def source(self) -> str:
        """The whole changed module."""
        return ast.unparse(self.site.changed(self.module))


def mutants(source: str, count: int, seed: str) -> list[Mutant]:
    """Return `count` mutants of a module (all of them if it has fewer), chosen at random, in the order of the file.

    >>> [each.after for each in mutants("def f(a): return a < 3", 9, "")]
    ['return None', 'return a <= 3', 'return a < 4']
    """
    tree = ast.parse(source)
    found = list(_sites(tree))
    chosen = random.Random(seed).sample(range(len(found)), min(count, len(found)))  # noqa: S311
    return [_mutant(tree, found[index]) for index in sorted(chosen)]


def _mutant(tree: ast.Module, site: Site) -> Mutant:
    before, after = ast.unparse(site.statement), ast.unparse(site.changed(site.statement))
    return Mutant(site.function, _told(before, after), _told(after, before), tree, site)


def _told(text: str, other: str) -> str:
    """Return the part of a text that differs from another's, with some characters around it."""
    begin = next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    end = next((at for at, (a, b) in enumerate(zip(text[::-1], other[::-1], strict=False)) if a != b), 0)
    end = min(end, len(text) - begin, len(other) - begin)
    return " ".join(text[max(0, begin - AROUND) : len(text) - end + AROUND].split())


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def _sites(tree: ast.Module) -> Iterator[Site]:
    def within(node: ast.AST, function: str, statement: ast.AST) -> Iterator[Site]:
        if isinstance(node, SKIPPED) or _is_text(node) or _is_for_types(node) or _is_table(node):
            return
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        if isinstance(node, ast.stmt):
            statement = node
        for change in _changes(node):
            yield Site(function or "module", statement, node, change)
        for name, value in ast.iter_fields(node):
            if name in (
                "annotation",
                "returns",
                "decorator_list",
                "keywords" if isinstance(node, ast.ClassDef) else "",
            ):
                continue
            if isinstance(node, ast.Raise):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from within(child, function, statement)

    yield from within(tree, "", tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Subscript | ast.BinOp):
        return False
    name = ast.unparse(node.targets[0])
    return name[0].isupper() and name[1:2].islower()


def _is_table(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict | ast.Tuple | ast.List):
        return False
    numbers = [each for each in ast.walk(node.value) if isinstance(each, ast.Constant) and type(each.value) is not str]
    return len(numbers) >= TABLE


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        yield lambda old: ast.Compare(old.left, [COMPARED[type(old.ops[0])](), *old.ops[1:]], old.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield lambda old: ast.BinOp(old.left, COMPUTED[type(old.op)](), old.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in COMPUTED:
        yield lambda old: ast.AugAssign(old.target, COMPUTED[type(old.op)](), old.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda old: ast.Constant(not old.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield lambda old: ast.Constant(old.value + 1)
    elif isinstance(node, ast.BoolOp):
        yield lambda old: ast.BoolOp(ast.Or() if isinstance(old.op, ast.And) else ast.And(), old.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda old: old.operand
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _negated
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield lambda _: ast.Return(ast.Constant(None))
    elif _is_removable(node):
        yield lambda _: ast.Pass()


def _is_removable(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    stored = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    return stored or isinstance(node, ast.Raise | ast.Continue | ast.Break)


def _negated(old: ast.If | ast.IfExp | ast.While) -> ast.AST:
    new = copy.copy(old)
    new.test = ast.UnaryOp(ast.Not(), old.test)
    return new
