"""Python in notebooks, documents and docstrings, compared with the package.

Nothing of the text is run, so the comparison takes no time: a name that the
package lost, and a call with other arguments than its function takes, are
seen. What a text prints is seen only where a test runs the text.
"""

import ast
import importlib
import inspect
import types

PACKAGE = "supcon_tf"


def misfits(code: str) -> list[str]:
    """The lines of a text whose names or calls do not fit the package."""
    tree = ast.parse(code)
    imported = _imported(tree)
    lines = []
    for node in ast.walk(tree):
        try:
            if isinstance(node, ast.Attribute):
                _value(node, imported)
            elif isinstance(node, ast.Call):
                _bind(node, _value(node.func, imported))
        except (AttributeError, TypeError) as error:
            lines.append(f"{ast.unparse(node)[:60]}: {error}")
    return lines


def _imported(tree: ast.Module) -> dict[str, object]:
    """What a text imports of the package, without names that it reuses."""
    values = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
            if PACKAGE in names:
                values[PACKAGE] = importlib.import_module(PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            if node.module.partition(".")[0] == PACKAGE:
                module = importlib.import_module(node.module)
                for alias in node.names:
                    value = getattr(module, alias.name)
                    values[alias.asname or alias.name] = value
    stored = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return {name: values[name] for name in values.keys() - stored}


def _value(node: ast.expr, imported: dict[str, object]) -> object:
    """The part of the package that an expression names; None for others."""
    if isinstance(node, ast.Name):
        return imported.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, imported)
        if isinstance(owner, types.ModuleType | type):
            return getattr(owner, node.attr)
    return None


def _bind(call: ast.Call, function: object) -> None:
    """Raises TypeError for arguments that a function of ours does not take."""
    if not str(getattr(function, "__module__", "")).startswith(PACKAGE):
        return
    names = {keyword.arg: None for keyword in call.keywords}
    arguments = [
        part for part in call.args if not isinstance(part, ast.Starred)
    ]
    is_partial = None in names or len(arguments) < len(call.args)
    names.pop(None, None)
    if isinstance(function, type):  # Keras' __new__ takes everything
        function, arguments = function.__init__, [None, *arguments]
    signature = inspect.signature(function)
    bind = signature.bind_partial if is_partial else signature.bind
    bind(*arguments, **names)
