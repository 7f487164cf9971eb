"""Turns .sql files into C: embed.py SOURCE.c HEADER.h FILE.sql…

A file in queries/ becomes `const char sql_<name>[]`, a file in bench/ `sql_bench_<name>`. Files in
migrations/ become the rows of `sql_migrations[]`, the numbered ones first. Each row holds the checksum
of its file, so that the program needs no hash function of its own.
"""

import hashlib
import pathlib
import re
import sys

HEADER = """\
#pragma once
/* Made from sql/ by sql/embed.py. The texts name the schema `outbox`: see schema_text.h. */
"""

MIGRATIONS_HEADER = """
struct sql_file {
	const char *name;           /* "0001_message" */
	int version;                /* its number; 0: repeatable, applied last and whenever it changed */
	const char *checksum;       /* SHA-256 of the file in hexadecimal */
	const char *oldest_program; /* its line `-- oldest-program: 0.1.0` */
	const char *text;
};

extern const struct sql_file sql_migrations[];
extern const int sql_migration_count;
"""


def literal(text):
    """One C string literal a line: compilers and people can both read the result."""
    lines = text.splitlines(keepends=True) or [""]
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "?": "\\?"}
    return "\n".join(
        '\t"' + "".join(escapes.get(c, c) for c in line) + '"' for line in lines
    )


def migration(path, text):
    number = re.match(r"(\d{4})_", path.stem)
    oldest = re.search(r"^-- oldest-program: (\d+\.\d+\.\d+)$", text, re.MULTILINE)
    if not oldest:
        sys.exit(f"{path}: has no line `-- oldest-program: X.Y.Z`")
    version = int(number.group(1)) if number else 0
    checksum = hashlib.sha256(text.encode()).hexdigest()
    row = f'\t{{"{path.stem}", {version}, "{checksum}", "{oldest.group(1)}",\n{literal(text)}}},\n'
    return (version or float("inf"), path.stem, row)


def statement(text):
    """Without the lines of comment: they would travel with every call."""
    return "".join(l for l in text.splitlines(keepends=True) if not l.startswith("--"))


def symbol(path):
    return f"sql_{'bench_' if path.parent.name == 'bench' else ''}{path.stem}"


def main():
    source, header, *names = sys.argv[1:]
    paths = [pathlib.Path(name) for name in names]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    migrations = sorted(migration(p, texts[p]) for p in paths if p.parent.name == "migrations")
    queries = sorted(p for p in paths if p.parent.name in ("queries", "bench"))

    declarations = "".join(f"extern const char {symbol(p)}[];\n" for p in queries)
    pathlib.Path(header).write_text(
        HEADER + (MIGRATIONS_HEADER if migrations else "") + "\n" + declarations, encoding="utf-8")

    code = f'#include "{pathlib.Path(header).name}"\n'
    if migrations:
        code += "\nconst struct sql_file sql_migrations[] = {\n"
        code += "".join(row for _, _, row in migrations) + "\t{0},\n};\n"
        code += f"const int sql_migration_count = {len(migrations)};\n"
    for path in queries:
        code += f"\nconst char {symbol(path)}[] =\n{literal(statement(texts[path]))};\n"
    pathlib.Path(source).write_text(code, encoding="utf-8")


main()
