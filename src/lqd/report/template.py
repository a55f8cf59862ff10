"""Pages from templates: what is put in is never looked through for places itself."""

import re
from collections.abc import Mapping


def fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced by the part of that name."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)
