"""A row of one's own: ``--add my_row.toml`` runs a model that is not in this repository beside the paper's rows.

The file names the module that registers the model, its rows, and ``[[settings]]`` blocks as in a recipe. Blocks of the
table's recipe that name no rows hold for the new rows as well; ``like`` lends a row the blocks of an existing one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reproduce.plan.imports import Import, digest
from reproduce.plan.recipe import Recipe, Row, check, explain, read_toml
from suite.files import nearest


class Added(BaseModel):
    """The content of such a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    modules: list[str] | str = Field(default=[], alias="import")
    rows: dict[str, Row] = Field(min_length=1)
    settings: list[dict[str, Any]] = Field(min_length=1)


def add(recipe: Recipe, path: Path) -> tuple[Recipe, tuple[Import, ...]]:
    """The recipe with the rows of a file, and the modules that have to be imported for them."""
    try:
        added = Added(**read_toml(path))
    except ValidationError as error:
        raise ValueError(f"{path.name}: {explain(error)}") from None
    for name, row in added.rows.items():
        if name in recipe.rows:
            raise ValueError(
                f"{path.name}: there is a row {name!r} in recipe {recipe.name} already; choose another name"
            )
        if not row.label:
            raise ValueError(f"{path.name}: row {name} has no label, which is its name in the table")
        if row.like and row.like not in recipe.rows:
            raise ValueError(f"{path.name}: row {name} is like {row.like!r}; {nearest(row.like, recipe.rows)}")
    for number, block in enumerate(added.settings, 1):
        block.setdefault("rows", list(added.rows))
        if not isinstance(block["rows"], list) or not set(block["rows"]) <= set(added.rows):
            raise ValueError(
                f"{path.name}, settings block {number}: rows is {block['rows']!r}; it may only name the file's own rows"
            )
    modules = [added.modules] if isinstance(added.modules, str) else added.modules
    imports = tuple(Import(module=module, folder=str(path.resolve().parent)) for module in modules)
    code = {one.module: digest(one) for one in imports}
    if code:
        source = f"ours: the modules that {path.name} imports"
        added.settings.append({"source": source, "rows": list(added.rows), "code": code})
    data = recipe.model_dump(exclude_unset=True)
    data["rows"] |= {name: row.model_dump(exclude_unset=True) for name, row in added.rows.items()}
    data["settings"] = [*recipe.settings, *added.settings]
    return check(data, path.name), imports
