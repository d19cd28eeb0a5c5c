"""What the site has beside docs/: the reference, and files that pages name.

mkdocs.yml names it as a hook. It reads the settings and the rooms' public
names, and imports no TensorFlow.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import pathlib
import re
import sys

import griffe
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
NAVIGATION = (ROOT / "mkdocs.yml").read_text()
sys.path.insert(0, str(ROOT))

from supcon_tf import settings  # noqa: E402
from supcon_tf.cli import commands  # noqa: E402

_TOOLS = {
    name: settings_class
    for name in commands.COMMANDS
    if (settings_class := commands.settings_of(name))
}


def on_files(files, config):
    """Adds the pages of the reference, and files of the checkout."""
    named = {
        path
        for file in files.documentation_pages()
        if file.src_uri.endswith(".md")
        for path in _outside(file.src_uri, file.content_string).values()
    }
    make = {"flags": flags_page, "api": api_page}
    for page, kind, name in re.findall(
        r"- (reference/(flags|api)/(\w+)\.md)", NAVIGATION
    ):
        text = make[kind](name)
        files.append(File.generated(config, page, content=text))
    for path in sorted(named):
        target = File.generated(
            config, f"checkout/{path}.txt", abs_src_path=str(ROOT / path)
        )
        files.append(target)
    return files


def on_page_markdown(markdown, page, config, files):
    """Leads links that leave docs/ to the copies of those files."""
    depth = page.file.src_uri.count("/")
    for link, path in _outside(page.file.src_uri, markdown).items():
        copy = "../" * depth + f"checkout/{path}.txt"
        markdown = markdown.replace(f"]({link})", f"]({copy})")
    return markdown


class Docstrings(griffe.Extension):
    """Shows examples, and equations, indented by two spaces, as they stand."""

    def on_object(self, *, obj, **_):
        if obj.docstring:
            text, section, rest = re.match(
                r"(.*?)(\n\w+:\n  |$)(.*)", obj.docstring.value, re.DOTALL
            ).groups()
            text = re.sub(r"^ {2}(?=\S)", "    ", text, flags=re.MULTILINE)
            whole = text + section + rest
            # The one that griffe knows; of the other it makes running text.
            whole = whole.replace("\nExample:\n", "\nExamples:\n")
            obj.docstring.value = whole


def flags_page(name: str) -> str:
    """The flags whose fields a module of config/ declares, group by group."""
    module = f"supcon_tf.config.{name}"
    about = sys.modules[module].__doc__.partition("\n")[0].rstrip(".")
    lines = [f"# {about}", ""]
    for group in vars(sys.modules[module]).values():
        if not dataclasses.is_dataclass(group) or group.__module__ != module:
            continue
        own = [
            field
            for field in dataclasses.fields(group)
            if field.name in group.__annotations__
            and "help" in field.metadata
            and not field.metadata["decided"]
        ]
        users = [x for x, tool in _TOOLS.items() if issubclass(tool, group)]
        if own:
            heading = group.__doc__.partition("\n")[0].rstrip(".")
            lines += [f"## {heading}", "", f"In {', '.join(users)}.", ""]
            lines += ["| flag | default | what |", "|---|---|---|"]
            lines += [_flag_row(field) for field in own] + [""]
    return "\n".join(lines)


def _flag_row(field: dataclasses.Field) -> str:
    text = field.metadata["help"]
    if field.metadata["choices"]:
        text += f" One of {', '.join(field.metadata['choices'])}."
    default = settings.to_text(field.default)
    default = f"`{default}`" if default not in ("", "None") else ""
    text = text.replace("|", "\\|").replace("<", "&lt;")
    return f"| `--{field.name}` | {default} | {text} |"


def api_page(room: str) -> str:
    """The public names of a room, which are those that it imports.

    Names of another room are left out where the page of that room has them.
    """
    tree = _tree(room)
    names = {
        name: module
        for name, module in _names(tree).items()
        if room in module.split(".") or not _has_page(name, module)
    }
    lines = [f"# supcon_tf.{room}", "", ast.get_docstring(tree) or "", ""]
    # Of Keras 3, each made from the one of Keras 2.
    made = [name for name, module in names.items() if _is_made(name, module)]
    if made:
        listed = ", ".join(f"`{name}`" for name in sorted(made))
        lines += [f"As in [supcon_tf.losses](losses.md): {listed}.", ""]
    for name, module in sorted(names.items()):
        if name in made:
            continue
        # A function may have its module's name, which would be shown instead.
        is_hidden = module.endswith(f".{room}.{name}")
        lines += [
            f"::: {module if is_hidden else f'supcon_tf.{room}'}.{name}",
            "",
        ]
    return "\n".join(lines)


def _tree(room: str) -> ast.Module:
    return ast.parse((ROOT / "supcon_tf" / room / "__init__.py").read_text())


def _names(tree: ast.Module) -> dict[str, str]:
    """What a room imports from modules, each with its module."""
    return {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and "." in node.module
        for alias in node.names
    }


def _has_page(name: str, module: str) -> bool:
    """Whether the page of the room of a module has the name."""
    room = module.split(".")[1]
    return f"reference/api/{room}.md" in NAVIGATION and name in _names(
        _tree(room)
    )


def _is_made(name: str, module: str) -> bool:
    """Whether a module has `name = wrappers...`, a class of Keras 3."""
    path = ROOT / (module.replace(".", "/") + ".py")
    source = path.read_text() if path.exists() else ""
    return re.search(rf"^{name} = wrappers\.", source, re.MULTILINE) is not None


def _outside(page: str, markdown: str) -> dict[str, str]:
    """Links of a page to files of the checkout outside docs/."""
    found = {}
    for link in re.findall(r"\]\(([^)#\s]+)\)", markdown):
        path = os.path.normpath(f"docs/{os.path.dirname(page)}/{link}")
        if "://" not in link and not path.startswith("docs"):
            found[link] = path
    return found
