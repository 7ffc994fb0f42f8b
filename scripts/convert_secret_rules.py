"""Convert public rules about secrets into `write/secret_rules.json`.

    python -m scripts.convert_secret_rules GITLEAKS_TOML BIP39_ENGLISH_TXT

GITLEAKS_TOML is `config/gitleaks.toml` of github.com/gitleaks/gitleaks (MIT), BIP39_ENGLISH_TXT is
`src/mnemonic/wordlist/english.txt` of github.com/trezor/python-mnemonic (MIT). Licences are in
`write/secret_rules.LICENSE`.

The expressions are written for RE2, which takes linear time whatever the expression. Rules that Python's `re` would
not match in linear time, rules about files, and rules about public ids are left out. Messages are prose and not
source files: a secret may be followed by a full stop, so the end of an expression is replaced.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "recollect" / "write" / "secret_rules.json"
# Unbounded searches from every match of a short beginning, or covered by `secrets.toml` and the credential model.
_OMITTED = {
    "generic-api-key", "curl-auth-header", "curl-auth-user", "private-key", "kubernetes-secret-yaml", "jwt-base64",
    "hashicorp-tf-password", "sourcegraph-access-token", "nuget-config-password", "freemius-secret-key",
}  # fmt: skip
_PUBLIC = re.compile("client-id|access-id|pub(?:lic)?-(?:api-)?key|user-api-id|facebook-access-token$")
_END = "(?:[\\x60'\"\\s;]|\\\\[nr]|$)"
_NAME_BEFORE = re.compile(r"^(\(\?i\))?\[\\w\.-\]\{0,50\}\?(?:\(\?i:\[\\w\.-\]\{0,50\}\?)?")
# A beginning of this form identifies a key even if it is cut off or longer than usual.
_PREFIX = re.compile(r"[a-z0-9._~-]{3,}[_~.-]")
_AMBIGUOUS_PREFIXES = {"ext_", "pat.", "sat.", "api-", "test_", "live_", "v1.0-", "_gitlab_session="}
_VENDORS = {"github": "GitHub", "gitlab": "GitLab", "slack": "Slack", "gcp": "Google", "aws": "AWS"}


def convert(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule with an expression for Python."""
    pattern = rule["regex"]
    is_assignment = bool(_NAME_BEFORE.match(pattern))
    if nested := re.match(r"^\[\\w\.-\]\{0,50\}\?\(\?i:\[\\w\.-\]\{0,50\}\?", pattern):
        pattern = "(?i:" + pattern[nested.end() :]
    elif before := _NAME_BEFORE.match(pattern):
        pattern = (before[1] or "") + pattern[before.end() :]
    pattern = pattern.replace("[[:alnum:]]", "[A-Za-z0-9]").replace("[:alnum:]", "A-Za-z0-9").replace(r"\z", r"\Z")
    pattern = pattern.replace(_END.replace("|$)", "|$|\\b)"), r"(?![\w-])").replace(_END, r"(?![\w-])")
    return {
        "kind": _kind(rule["id"]),
        "hints": rule["keywords"],
        "pattern": _scope_flags(pattern),
        "group": rule.get("secretGroup", min(1, re.compile(_scope_flags(pattern)).groups)),
        "entropy": rule.get("entropy", 0),
        "is_assignment": is_assignment,
    }


def _kind(id: str) -> str:
    vendor = _VENDORS.get(id.split("-", maxsplit=1)[0], "")
    if "webhook" in id:
        return "webhook address"
    if vendor:
        return f"{vendor} {'key' if vendor == 'AWS' else 'token'}"
    return "api key" if id.endswith("key") else "access token"


def _scope_flags(pattern: str) -> str:
    """Replace each `(?i)` by a group over the rest of the group that it stands in."""
    while (at := pattern.find("(?i)")) >= 0:
        depth, end = 0, len(pattern)
        is_class = False
        for place in range(at + 4, len(pattern)):
            character = pattern[place]
            if pattern[place - 1] == "\\" and pattern[place - 2] != "\\":
                continue
            if is_class:
                is_class = character != "]"
            elif character == "[":
                is_class = True
            elif character == "(":
                depth += 1
            elif character == ")":
                depth -= 1
                if depth < 0:
                    end = place
                    break
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
    return pattern


def _prefixes(rules: list[dict[str, Any]]) -> dict[str, list[str]]:
    prefixes: dict[str, set[str]] = {}
    for rule in rules:
        for hint in rule["hints"]:
            if not rule["is_assignment"] and _PREFIX.fullmatch(hint) and hint not in _AMBIGUOUS_PREFIXES:
                prefixes.setdefault(rule["kind"], set()).add(hint)
    return {kind: sorted(texts) for kind, texts in sorted(prefixes.items())}


def main() -> None:
    """Convert the rules and write them."""
    gitleaks = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    words = Path(sys.argv[2]).read_text(encoding="utf-8").split()
    rules = [
        convert(rule)
        for rule in gitleaks["rules"]
        if "regex" in rule and rule["id"] not in _OMITTED and not _PUBLIC.search(rule["id"])
    ]
    prefixes = _prefixes(rules)
    for rule in rules:
        del rule["is_assignment"]
    rows = ",\n".join(json.dumps(rule) for rule in rules)
    data = f'{{\n"prefixes": {json.dumps(prefixes, indent=0)},\n"rules": [\n{rows}\n],\n'
    TARGET.write_text(f'{data}"mnemonic_words": "{" ".join(words)}"\n}}\n', encoding="utf-8")
    print(f"{TARGET.name}: {len(rules)} rules, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
