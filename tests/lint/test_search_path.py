"""What a login plants in a schema that others may write to is never run by us.

A function of a migration is one of three:
  set         it has `set search_path = pg_catalog, pg_temp`: every function that a session calls, unless
              it is called for each row, where the setting would cost more than the work
  qualified   no setting; every function, operator and type is written with its schema
  inner       no setting and nothing qualified; only functions of the first kind call it
A statement of sql/queries or sql/bench runs in a session that has set its search_path, or says "Any search_path" and is
qualified.
"""

import glob
import os
import re

import pytest

from support.sql_names import CALL, functions, outside_of_functions, unqualified

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ANY_PATH = "-- Any search_path: "
# They are called for each row, or with every tick, so that a setting is too dear for them.
QUALIFIED = {"headers_valid", "publish", "bucket_of", "bucket_shard", "first_bucket", "shard_of", "shard_numbers",
             "timeline", "parked_digest", "parked_is", "parked_may", "lookback_is", "bell_ring", "listed_rows", "largest",
             "message_check", "message_rules", "published_bytes",
             "utf8_length", "encoding_is_utf8", "publishable_types", "check_publishable", "is_hex_of_bytes", "new_event_id", "max_message_bytes"}
# By pg_start_plain and pg_connect_plain, or in a borrowed connection.
FOREIGN = {"check_ask", "check_begin", "check_function", "dedup_load_begin", "dedup_load_declare",
           "dedup_load_fetch", "dedup_load_shape", "dedup_load_types", "dedup_session", "processed_take"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def texts(folder):
    return {os.path.relpath(path, ROOT): read(path)
            for path in sorted(glob.glob(os.path.join(ROOT, "sql", folder, "*.sql")))}


MIGRATIONS, QUERIES = texts("migrations"), texts("queries") | texts("bench")
FUNCTIONS = [function for path, text in MIGRATIONS.items() for function in functions(path, text)]
INNER = [function for function in FUNCTIONS if not function.safe and function.unqualified()]


def described(function, why=""):
    names = "; ".join(f"line {line}: {what}" for line, what in function.unqualified()[:5])
    return f"{function.path}: outbox.{function.name}{why}: {names}"


def test_every_function_of_the_migrations_is_read():
    made = [name for text in MIGRATIONS.values()
            for name in re.findall(r"^create (?:or replace )?function outbox\.(\w+)", text, re.MULTILINE)]
    # one is a constant without a body in dollars
    assert sorted(made) == sorted([function.name for function in FUNCTIONS] + ["log_partition_rows"])


def test_functions_called_for_each_row_have_no_setting_and_qualify_everything():
    assert QUALIFIED <= {function.name for function in FUNCTIONS}
    for function in FUNCTIONS:
        if function.name in QUALIFIED:
            assert not function.safe, f"outbox.{function.name} is called for each row: no setting"
            assert not function.unqualified(), described(function)


def test_nothing_but_functions_with_a_safe_path_calls_an_inner_function():
    inner = {function.name for function in INNER}
    callers = {function.name: function for function in FUNCTIONS if not function.safe}
    wrong = [described(function, f" is called by {caller.name}, which sets no search_path")
             for function in INNER for caller in callers.values()
             if function.name in caller.calls and caller.name not in inner]
    assert not wrong, "\n".join(wrong)


def test_no_session_calls_an_inner_function():
    """Nor does a view, a constraint or a default, nor may another role than the relay's call one."""
    outside = {path: re.sub(r"do \$\$.*?\$\$;", "", outside_of_functions(text), flags=re.DOTALL)
               for path, text in MIGRATIONS.items()}
    outside = {path: re.sub(r"\b(?:revoke|comment)\b[^;]*;", "", text) for path, text in outside.items()}
    used = {}
    for path, text in {**QUERIES, **outside}.items():
        for name in CALL.findall(text):
            used.setdefault(name, path)
    wrong = [described(function, f" is called by {used[function.name]}: set search_path = pg_catalog, "
                                 "pg_temp, or qualify") for function in INNER if function.name in used]
    assert not wrong, "\n".join(wrong)


def test_functions_of_the_owner_have_a_safe_path_and_hide_no_row():
    for function in FUNCTIONS:
        if function.definer:
            assert function.safe, described(function)
            assert "set row_security = off" in function.head, \
                f"outbox.{function.name}: a policy could hide rows from it; set row_security = off"


def test_statements_in_sessions_of_others_qualify_everything():
    marked = {os.path.basename(path)[:-4] for path, text in QUERIES.items() if ANY_PATH in text}
    assert FOREIGN <= marked
    for path, text in QUERIES.items():
        if ANY_PATH in text:
            assert not unqualified(text), f"{path}: {unqualified(text)}"


def test_texts_mean_the_same_whatever_a_backslash_means():
    """Functions are read by the settings of whoever calls them."""
    wrong = [f"{function.path}: outbox.{function.name}" for function in FUNCTIONS if "\\" in function.body]
    assert not wrong, f"write [(] for \\(, [0-9] for \\d, decode('00', 'hex') for \\x00: {wrong}"


@pytest.mark.parametrize("text, names", [
    ("select a = 1", ["="]), ("select a operator(pg_catalog.=) 1", []),
    ("select lower(a)", ["lower("]), ("select pg_catalog.lower(a)", []),
    ("select a::text", ["::text"]), ("select a::pg_catalog.text::int", []),
    ("select a in (1, 2)", ["in ("]), ("select position(a in b)", []),
    ("select case a when 1 then 2 end", ["case … when: compares"]),
    ("select case when a then 2 end, count(*)", ["count("]),
    ("select a is distinct from b", ["is distinct from"]), ("select distinct a", []),
    ("select nullif(a, b), coalesce(a, b)", ["nullif"]), ("select a between 1 and 2", ["between"]),
    ("select * from x join y using (a)", ["join … using"]),
    ("declare a text; b int := 1; begin end", ["type text"]),
    ("declare a pg_catalog.text; begin update t set a = 1, b = 2 where c; end", []),
    ("update t set a = 1 where b = 2", ["="]), ("select -1, a - 1", ["-"]),
    ("select timestamptz 'epoch'", ["timestamptz '…'"]), ("select interval '1 ms', 'a = b'", []),
    ("raise exception 'a' using errcode = 'b'", []), ("select a from pg_catalog.unnest(b) w (a)", []),
    ("select '(a = b)' -- lower(a)\n", [])])
def test_a_name_without_a_schema_is_found(text, names):
    assert [what for _, what in unqualified(text)] == names
