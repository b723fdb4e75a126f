"""Hooks of mkdocs.yml: pages of the documentation site that are made from the code, and docstrings as Markdown.

The command line's reference is what the parser prints, the profiles' what their JSON Schemas say. CHANGELOG.md and
CONTRIBUTING.md, which lie outside of docs/, become pages of the site.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.testing import CliRunner

from simulator.cli import COMMANDS, build

ROOT = Path(__file__).parents[1]
WIDTH = 92  # columns of a code block on the site
SCHEMAS = {
    "Device": "hardware_profiles/schema.json",
    "Price list": "hardware_profiles/prices/schema.json",
    "Purchase prices": "hardware_profiles/purchases/schema.json",
    "Site": "hardware_profiles/sites/schema.json",
    "Model": "model_profiles/schema.json",
    "Engine": "simulator/engines/schema.json",
    "Workload": "simulator/workloads/schema.json",
}
PROFILES = """# Profiles: every key

Made from the JSON Schemas that line 1 of each profile names; an editor that knows them completes and checks. A figure
is `{value: 24 GB, source: NAME}`, with a unit, or `{value: 72 W, guess: "why"}`. `infercast profiles --lint` checks
all. Your own lie in a folder of yours: [a device](howto/own-gpu.md), [a model](howto/own-model.md).
"""
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # a doctest, up to an empty line


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put documents that the navigation does not name at the end of its last section."""
    assert config.nav, "mkdocs.yml names the pages"  # noqa: S101
    (last,) = config.nav[-1].values()
    named = set(re.findall(r"[\w/-]+\.md", json.dumps(config.nav)))
    documents = (str(path.relative_to(config.docs_dir)) for path in sorted(Path(config.docs_dir).rglob("*.md")))
    last += [name for name in documents if name not in named]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"commands.md": commands_page(), "schemas.md": schemas_page()}
    pages |= {f"{name.lower()}.md": outside_page(ROOT / f"{name}.md") for name in ("CHANGELOG", "CONTRIBUTING")}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def help_of(*words: str) -> str:
    """Return what `infercast WORDS --help` prints."""
    arguments = [*words, "--help"]
    runner = CliRunner(env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)})
    return runner.invoke(build(arguments), arguments, prog_name="infercast").output


def commands_page() -> str:
    """Return the reference of the command line, as the parser prints it."""
    parts = ["# Command line\n\nEvery command and option, as `infercast COMMAND --help` prints them.\n"]
    for name, summary in COMMANDS.items():
        parts.append(f"## infercast {name}\n\n{summary}\n\n```text\n{help_of(name)}```\n")
        if name == "calibrate":
            words = help_of(name, "--measured", "FILE")
            parts.append(f"## infercast calibrate --measured\n\nTo your own measurements.\n\n```text\n{words}```\n")
    return "\n".join(parts)


def schemas_page() -> str:
    """Return the reference of profiles: a table of keys for each kind and for each part of one."""
    parts = [PROFILES]
    for title, path in SCHEMAS.items():
        schema = json.loads((ROOT / path).read_text())
        parts.append(f"## {title}\n\n`{path}`. {schema['description']}\n\n{keys_table(schema, title)}")
        for name, part in schema.get("$defs", {}).items():
            if part.get("properties") and name != "Source":
                parts.append(f"### {title}: {name}\n\n{part.get('description', '')}\n\n{keys_table(part, title)}")
    return "\n".join(parts)


def keys_table(schema: Mapping[str, Any], title: str) -> str:
    """Return the keys of an object as a table: name, what it holds, default."""
    rows = [f"| `{name}` | {holds(part, title)} | {default_of(schema, name)} |\n" for name, part in keys(schema)]
    return f"| key | holds | default |\n|---|---|---|\n{''.join(rows)}"


def holds(part: Mapping[str, Any], title: str) -> str:
    """Return what a key holds, with its description where the schema has one."""
    words = " ".join(part.get("description", "").split()).replace("|", "\\|")
    return f"{kind_of(part, title)}: {words}" if words else kind_of(part, title)


def keys(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the keys of an object, those that are required first."""
    required = schema.get("required", ())
    yield from sorted(schema["properties"].items(), key=lambda item: item[0] not in required)


def default_of(schema: Mapping[str, Any], name: str) -> str:
    """Return "required", the default of a key, or "" for none."""
    if name in schema.get("required", ()):
        return "required"
    default = schema["properties"][name].get("default")
    return "" if default in (None, "") or isinstance(default, list | dict) else f"`{json.dumps(default)}`"


def kind_of(part: Mapping[str, Any], title: str) -> str:
    """Return in a few words what a part of a JSON Schema allows."""
    values, choices = part.get("additionalProperties"), part.get("anyOf", part.get("oneOf", ()))
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        found = name if name == "Source" else f"[{name}](#{title.lower().replace(' ', '-')}-{name.lower()})"
    elif "value" in part.get("properties", {}):
        found = figure_in(part["properties"]["value"])
    elif choices:
        found = " or ".join(dict.fromkeys(kind_of(each, title) for each in choices if each.get("type") != "null"))
    elif "enum" in part or "const" in part:
        found = ", ".join(f"`{each}`" for each in part.get("enum", [part.get("const")]))
    elif part.get("type") == "array":
        found = f"list of {kind_of(part.get('items', {}), title)}"
    elif values:
        found = f"of each name, {kind_of(values, title)}"
    else:
        found = {"object": "mapping", None: "anything"}.get(part.get("type"), str(part.get("type")))
    return found


def figure_in(value: Mapping[str, Any]) -> str:
    """Return "figure", with the units that its value may have."""
    units = re.search(r"\(([^()]*)\)\$$", value.get("pattern", ""))
    return f"figure in {units[1].replace('|', ', ')}" if units else "figure"


def outside_page(path: Path) -> str:
    """Return a file of the repository's root as a page: links into docs/ become links of the site."""
    text = re.sub(r"\]\(docs/", "](", path.read_text())
    return text.replace("](CHANGELOG.md)", "](changelog.md)").replace("](CONTRIBUTING.md)", "](contributing.md)")


class Examples(griffe.Extension):
    """Doctests of docstrings as blocks of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests of an object's docstring."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value)
