"""Names in SQL that the search_path would look up: functions, operators and types without a schema.

Only a text that names the schema of everything means the same under any search_path. It need not be
complete SQL: the body of a function, or a statement of sql/queries.
"""

import re

TOKEN = re.compile(r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<string>[eEbBxX]?'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*")
  | (?P<body>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
  | (?P<parameter>\$\d+|:\w+)
  | (?P<number>\d[\d_]*(?:\.(?!\.)\d*)?(?:[eE][+-]?\d+)?)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<cast>::)
  | (?P<plain>:=|=>|\.\.|[()\[\],;.:])
  | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
  | (?P<space>\s+)
""", re.VERBOSE | re.DOTALL)

# Words before a bracket that call nothing, or what the grammar itself names in pg_catalog.
GRAMMAR = set("""
    all and any array as asc by case check coalesce conflict cross cube desc distinct do else elsif end
    except exists exit extract filter first for from greatest group grouping having if in inner insert
    intersect into is join key last lateral least left limit loop materialized not nothing null nulls of
    offset on only or order over overlay partition perform position primary query raise range recursive
    reference returning return returns right row rows select set similar some substring table then to trim
    union update using values when where while with within xmlelement next continue using unique
""".split())
# Types that the grammar names in pg_catalog, with or without brackets.
TYPES = set("""bigint bit boolean char character dec decimal double float int integer interval nchar
               numeric real smallint time timestamp varchar""".split())
# What can stand in front of a minus that is a sign.
BEFORE_SIGN = {"(", ",", "[", "=", "<", ">", "<=", ">=", "<>", ":=", ":", "then", "else", "select", "return",
               "case", "when", "and", "or", "in", "limit", ".."}
# Operators are looked up behind these words as well, and cannot be given a schema there.
HIDDEN = {"between", "like", "ilike", "similar", "nullif"}
# plpgsql: RAISE … USING errcode = …
OPTIONS = {"errcode", "hint", "detail", "message", "constraint", "column", "table", "schema", "datatype"}


def tokens(text):
    """(kind, text, line) without blanks and comments."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match, f"not read: {text[at:at + 40]!r}"
        if match.lastgroup not in ("space", "comment") and match["space"] is None \
                and match["comment"] is None:
            kind = next(kind for kind in ("string", "quoted", "body", "parameter", "number", "word", "cast",
                                          "plain", "operator") if match[kind] is not None)
            found.append((kind, match[0], text.count("\n", 0, at) + 1))
        at = match.end()
    return found


def unqualified(text):
    """What the search_path decides on, as (line, what)."""
    found = []
    all_tokens = tokens(text)
    words = [value.lower() if kind == "word" else value for kind, value, _ in all_tokens]
    kinds = [kind for kind, _, _ in all_tokens]
    declares = False
    columns = 0   # brackets of a list of columns
    for at, (kind, value, line) in enumerate(all_tokens):
        word = words[at]
        before = words[at - 1] if at else ""
        before2 = words[at - 2] if at > 1 else ""
        after = words[at + 1] if at + 1 < len(words) else ""
        kind_before = kinds[at - 1] if at else ""
        if word == "declare":
            declares = words[at + 2] not in ("no", "scroll", "binary", "insensitive", "cursor")
        elif word == "begin":
            declares = False
        elif declares and kind == "word" and before in ("declare", ";") and after not in (":=",):
            place = at + 1 + (after == "constant")
            kind_of = words[place]
            qualified = words[place + 1] == "."
            if not qualified and kind_of not in TYPES and kind_of != "record":
                found.append((line, f"type {kind_of}"))
        if kind == "cast":
            if after not in TYPES and words[at + 2:at + 3] != ["."]:
                found.append((line, f"::{after}"))
        elif kind == "word" and word == "operator" and after == "(":
            continue
        elif kind == "word" and word in HIDDEN and before not in (".",):
            found.append((line, word))
        elif kind == "word" and word == "in" and after == "(" and before != "position":
            if not _inside_position(words, at):
                found.append((line, "in ("))
        elif kind == "word" and word == "distinct" and before in ("is", "not") and after == "from":
            found.append((line, "is distinct from"))
        elif kind == "word" and word == "case" and after != "when" and before != "end":
            found.append((line, "case … when: compares"))
        elif kind == "word" and word == "using" and after == "(":
            found.append((line, "join … using"))
        elif kind == "word" and after == "(" and before != "." and word not in GRAMMAR | TYPES \
                and not _names_columns(words, kinds, at):
            found.append((line, f"{value}("))
        elif kind == "word" and kinds[at + 1:at + 2] == ["string"] and before != "." \
                and word not in GRAMMAR | TYPES | {"exception", "notice", "warning", "info", "errcode", "hint"}:
            found.append((line, f"{value} '…'"))
        elif kind == "operator" and not _is_qualified(words, at):
            if value == "*" and (before in ("select", ".", "(", ",") or after == ")"):
                continue
            if value in ("-", "+") and (before in BEFORE_SIGN or kind_before == "operator"):
                continue
            if value == "=" and (before in OPTIONS or _is_assignment(words, at)):
                continue
            found.append((line, value))
    return found


def _is_qualified(words, at):
    """operator(pg_catalog.=)"""
    return at >= 4 and words[at - 1] == "." and words[at - 3] == "(" and words[at - 4] == "operator"


def _inside_position(words, at):
    depth = 0
    for place in range(at - 1, -1, -1):
        depth += (words[place] == ")") - (words[place] == "(")
        if depth < 0:
            return words[place - 1] == "position"
    return False


def _names_columns(words, kinds, at):
    """An alias with its columns, `insert into t (…)`, `with t (…)`."""
    before, kind_before = words[at - 1] if at else "", kinds[at - 1] if at else ""
    if before in (")", "as", "into", "recursive", "with", "ordinality", "lateral"):
        return True
    return kind_before == "word" and before not in GRAMMAR | {"by", "else"} and before != "operator"


def _is_assignment(words, at):
    """UPDATE … SET a = …, b = …: since the last `set` only commas and whole expressions came."""
    depth = 0
    for place in range(at - 1, -1, -1):
        word = words[place]
        depth += (word in (")", "]")) - (word in ("(", "["))
        if depth < 0 or word in ("where", "from", "select", ";", "and", "or", "when", "then", "else"):
            return False
        if depth == 0 and word == ",":
            return words[at - 2] == "," and _is_assignment(words, place)
        if depth == 0 and word == "set":
            return True
    return False


FUNCTION = re.compile(r"create function outbox\.(\w+)\s*\((?P<head>(?:(?!create function).)*?)"
                      r"(?P<as>as\s+)\$\$(?P<body>.*?)\$\$", re.DOTALL)
CALL = re.compile(r"\boutbox\.(\w+)\s*\(")
SAFE_PATH = "set search_path = pg_catalog, pg_temp"


class Function:
    """One `create function` of a migration; overloads are functions of their own with one name."""

    def __init__(self, path, text, match):
        self.path, self.name = path, match[1]
        self.head, self.body = match["head"], match["body"]
        self.line = text.count("\n", 0, match.start()) + 1
        self.body_line = text.count("\n", 0, match.start("body")) + 1
        self.safe = SAFE_PATH in self.head
        self.definer = "security definer" in self.head
        self.calls = set(CALL.findall(self.body)) - {self.name}

    def unqualified(self):
        return [(self.body_line + line - 1, what) for line, what in unqualified(self.body)]


def functions(path, text):
    return [Function(path, text, match) for match in FUNCTION.finditer(text)]


def outside_of_functions(text):
    """The rest of a migration: views, constraints, defaults and grants."""
    return FUNCTION.sub("", re.sub(r"^--.*", "", text, flags=re.MULTILINE))
