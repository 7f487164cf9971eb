"""Puts the files of the console into a C source: embed.py SOURCE.c HEADER.h FILE…

Each becomes a row of `console_files[]` with its media type and a digest of its bytes, by which a
browser notices that it has the file already.
"""

import hashlib
import pathlib
import sys

HEADER = """\
#pragma once
/* Made from relay/console by relay/console/embed.py. */
#include <stddef.h>

struct console_file {
	const char *name, *type;
	const char *etag; /* with its quotes */
	const char *bytes;
	size_t length;
};

extern const struct console_file console_files[];
extern const int console_file_count;
"""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
LINE = 80


def literal(data):
    """String literals. Three octal digits are unambiguous before any character."""
    def escape(byte):
        return chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"

    lines = [data[at:at + LINE] for at in range(0, len(data), LINE)] or [b""]
    return "\n".join('\t"' + "".join(map(escape, line)) + '"' for line in lines)


def row(path):
    data = path.read_bytes()
    if path.suffix not in TYPES:
        sys.exit(f"{path}: no media type is known for {path.suffix}; add it to TYPES")
    name = "chart.js" if path.name == "chart.min.js" else path.name
    etag = hashlib.sha256(data).hexdigest()[:16]
    return f'\t{{"{name}", "{TYPES[path.suffix]}", "\\"{etag}\\"",\n{literal(data)},\n\t{len(data)}}},\n'


def main():
    source, header, *names = sys.argv[1:]
    paths = sorted((pathlib.Path(name) for name in names), key=lambda path: path.name)
    pathlib.Path(header).write_text(HEADER, encoding="utf-8")
    pathlib.Path(source).write_text(
        f'#include "{pathlib.Path(header).name}"\n\nconst struct console_file console_files[] = {{\n'
        + "".join(map(row, paths)) + f"}};\nconst int console_file_count = {len(paths)};\n",
        encoding="utf-8")


main()
