"""How large a thing may be. There is no list of exceptions, and there will be none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tidy.tree import Source

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
PROTOCOL_METHODS_MAX = 8
CONSTRUCTOR_PARAMETERS_MAX = 6

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def module_lines(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{source.path}: {lines} lines, {MODULE_LINES_MAX} is the limit: find the second subject and move it out"


def function_lines(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, FUNCTIONS) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield (
                    f"{source.at(node)}: {node.name} has {lines} lines, {FUNCTION_LINES_MAX} is the limit: "
                    f"name its steps and make them functions"
                )


def protocol_methods(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and is_protocol(node):
            methods = {item.name for item in node.body if isinstance(item, FUNCTIONS)}
            if len(methods) > PROTOCOL_METHODS_MAX:
                yield (
                    f"{source.at(node)}: the protocol {node.name} has {len(methods)} methods, "
                    f"{PROTOCOL_METHODS_MAX} is the limit: split it by who calls"
                )


def constructor_parameters(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, FUNCTIONS) and node.name == "__init__":
            parameters = node.args
            count = len(parameters.posonlyargs) + len(parameters.args) + len(parameters.kwonlyargs) - 1
            count += (parameters.vararg is not None) + (parameters.kwarg is not None)
            if count > CONSTRUCTOR_PARAMETERS_MAX:
                yield (
                    f"{source.at(node)}: a constructor with {count} parameters, {CONSTRUCTOR_PARAMETERS_MAX} is "
                    f"the limit: pass a settings object"
                )


def is_protocol(node: ast.ClassDef) -> bool:
    return any(name_of(base) == "Protocol" for base in node.bases)


def name_of(node: ast.AST) -> str:
    """The last name of ``a``, ``a.b``, ``a.b[c]`` or ``a.b(c)``; empty when there is none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return name_of(inner)
        case _:
            return ""
