"""The reference pages are what the program writes, and each metric it shows is explained."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess

import pytest

from support.api import CONFIG, SENDER, Api, decision
from support.dedup import Dedup, DedupError
from support.guide import calls_of, code_of
from support.process import free_port, wait_for
from support.relay import beside, bench_binary, run_command

TOKEN = "token-of-a-sender"
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def printed(*arguments, program=None):
    status, out, error = run_command(arguments, program=program)
    assert status == 0, error
    return out


def test_the_page_of_commands_is_fresh():
    assert page("reference/commands.md") == printed("help", "--markdown")


def test_the_page_of_the_bench_is_fresh():
    assert page("reference/bench.md") == printed("--markdown", program=bench_binary())


def test_the_page_of_the_configuration_is_fresh():
    assert page("reference/configuration.md") == printed("config", "--print-reference")


SERVICES = """\
[check "billing"]
url = grpc://billing
"""
DELIVER = """\
[deliver "billing"]
topics = {topic}
group = {topic}
url = http://127.0.0.1:9/
"""


def test_the_page_of_metrics_is_fresh():
    done = subprocess.run([beside("tests/unit/metrics_page")], capture_output=True, text=True,
                          timeout=60, check=True)
    assert page("reference/metrics.md") == done.stdout


@pytest.fixture(scope="module")
def print_sql():
    """docs/reference/print-sql as a module."""
    loader = importlib.machinery.SourceFileLoader("print_sql", str(DOCS / "reference/print-sql"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_the_page_of_the_schema_is_fresh(database, print_sql, capsys):
    print_sql.print_page(print_sql.Catalog(database.dsn))
    assert page("reference/sql.md") == capsys.readouterr().out


def test_every_public_object_of_the_schema_has_a_comment(database, print_sql):
    assert not print_sql.uncommented(print_sql.Catalog(database.dsn))


@pytest.mark.parametrize("change, name", [
    ("comment on table outbox.audit is null", "audit"),
    ("comment on column outbox.parked.state is null", "parked.state"),
    ("alter table outbox.log add note text", "log.note"),
    ("comment on function outbox.processed_remove(text, bytea[]) is null", "processed_remove(name text, ids bytea[])"),
    ("comment on domain outbox.topic_name is null", "topic_name"),
    ("grant execute on function outbox.largest(bigint[]) to outbox_reader", "largest(ids bigint[])"),
])
def test_a_public_object_without_a_comment_is_found(database, print_sql, change, name):
    database.execute(change)
    assert print_sql.uncommented(print_sql.Catalog(database.dsn)) == [name]


def explained_metrics():
    rows = r"^\| `(\w+)` \| \w+ \| (.*?) \|"
    return dict(re.findall(rows, page("reference/metrics.md"), re.MULTILINE))


def shown_metrics(relay):
    return dict(re.findall(r"^# HELP (\S+) (.*)$", relay.get("/metrics")[1], re.MULTILINE))


def test_every_metric_is_explained_and_every_explained_one_exists(
        database, topic, make_relay, tmp_path):
    explained = explained_metrics()
    (tmp_path / "relay.ini").write_text((CONFIG + SERVICES + DELIVER).format(topic=topic) + SENDER)
    port = free_port()
    relay = make_relay(config=tmp_path / "relay.ini", api_listen=port).wait_ready()
    assert Api(port, TOKEN).post("commit", decision("1", "payroll")).code == "unknown_type"
    # A part of the program shows its metrics when it first has something to tell.
    wait_for(lambda: shown_metrics(relay).keys() >= explained.keys(), 60, "every explained metric")
    assert explained == shown_metrics(relay)


def between(name, marker):
    return re.search(rf"<!-- {marker} -->\n(.*?)<!-- /{marker} -->", page(name), re.DOTALL)[1]


def test_the_tables_of_stores_are_fresh():
    assert between("reference/dedup.md", "stores") == printed("dedup", "stores", "--markdown")


STORE_COLUMNS = (("lossy", "releases", "shared", "scope"),
                 ("false_positives", "false_negatives", "restart"), ("memory", "disk"))


def test_the_stores_are_the_same_in_json_and_for_people():
    stores = json.loads(printed("dedup", "stores", "--json"))
    words = {True: "yes", False: "no"}
    tables = between("reference/dedup.md", "stores").split("\n\n")
    shown = [{"store": store["store"]} for store in stores]
    for table, names in zip(tables, STORE_COLUMNS, strict=True):
        for store, row in zip(shown, table.splitlines()[2:], strict=True):
            name, *cells = [cell.strip().strip("`") for cell in row.strip("|\n").split(" | ")]
            assert name == store["store"]
            store |= dict(zip(names, cells, strict=True))
    assert shown == [{name: words.get(value, value) for name, value in store.items()} for store in stores]
    text = printed("dedup", "stores")
    assert all(value in text for store in stores for value in store.values()
               if isinstance(value, str))


def test_the_settings_of_dedup_are_those_of_the_program():
    section = page("reference/dedup.md").split("\n## The line\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ", section, re.MULTILINE)
    explained = {(name, store) for name, stores in rows for store in stores.split(", ")}
    taken = set()
    for store in {store for _, store in explained}:
        with pytest.raises(DedupError) as refused:
            Dedup(f"{store} nonsense=1")
        names = str(refused.value).split("there are: ")[1]
        taken |= {(name, store) for name in names.split(", ")}
    assert explained == taken


@pytest.mark.parametrize("name,part,example", [
    ("dedup", "example", "dedup"), ("inbox", "example handle", "inbox"), ("inbox", "example settings", "inbox"),
    ("other-queues", "example rabbitmq", "rabbitmq")])
def test_the_examples_in_c_are_shown_as_they_are(name, part, example):
    shown = between(f"guide/{name}.md", part).removeprefix("```c\n").removesuffix("\n```\n")
    assert shown in (DOCS / f"examples/{example}.c").read_text(encoding="utf-8")


def test_the_example_of_dedup_handles_each_message_once(tmp_path):
    def handled(lines):
        run = subprocess.run(
            [beside("tests/integration/dedup_example"), f"bloom ids=1k path={tmp_path / 'dedup'}"],
            input=lines, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        return run.stdout.split("\n")[:-1]

    assert handled("1 a\n2 b\n3 a\n") == ["handled a", "handled b"]
    assert handled("3 a\n4 c\n4 c\n") == ["handled c"]


# --- lines of commands and keys of configurations in all pages --------------------------------------

ALL_PAGES = sorted([*DOCS.rglob("*.md"), DOCS.parent / "README.md"])


def test_every_command_in_a_page_exists_with_its_options():
    known, faults, seen = {}, [], 0
    names = re.findall(r"^## ([a-z][a-z -]+)$", page("reference/commands.md"), re.MULTILINE)
    for path in ALL_PAGES:
        inline = re.findall(r"`outbox-relay ([^`|[-][^`|[]*)`", path.read_text(encoding="utf-8"))
        for line in calls_of(path.read_text(encoding="utf-8")) + [" ".join(call.split()) for call in inline]:
            line = line.replace("--config relay.ini", "")
            name = max((name for name in names if f"{line} ".startswith(f"{name} ")), key=len, default=None)
            if name is None:
                if line in {each.split()[0] for each in names}:  # `outbox-relay parked`: all of them
                    continue
                faults.append(f"{path.name}: outbox-relay {line}")
                continue
            seen += 1
            if name not in known:
                known[name] = set(re.findall(r"(?<![\w-])--[\w-]+", printed("help", *name.split())))
            words = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)
            faults += [f"{path.name}: outbox-relay {name} has no {option}"
                       for option in re.findall(r"(?<![\w-])--[\w-]+", words)
                       if option not in known[name] | {"--config"}]
    assert seen > 40 and not faults, "\n".join(faults)


def test_every_key_of_a_configuration_in_a_page_exists():
    reference = page("reference/configuration.md")
    keys = {section: set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
            for section, text in re.findall(r"^## `?\[(\w+)[^\n]*\n(.*?)(?=^## |\Z)", reference, re.MULTILINE | re.DOTALL)}
    faults, seen = [], 0
    for path in ALL_PAGES:
        if path.parent.name == "reference" and path.name == "configuration.md":
            continue
        section = None
        for line in code_of(path.read_text(encoding="utf-8")).split("\n"):
            heading = re.match(r'\s*\[([a-z]+)(?: "[^"]*")?\]\s*$', line)
            if heading:
                section = heading[1] if heading[1] in keys else None
                faults += [f"{path.name}: [{heading[1]}]"] * (section is None and "Unit" not in line)
            entry = re.match(r"\s*([a-z][a-z_]*) = ", line)
            if not section or not line.strip():
                section = section if line.strip() else None
            elif entry and section not in ("kafka",):
                seen += 1
                faults += [f"{path.name}: [{section}] {entry[1]}"] * (entry[1] not in keys[section])
    assert seen > 20 and not faults, "\n".join(faults)


def test_the_page_of_the_interface_has_each_verb_with_its_roles():
    source = (DOCS.parent / "relay/admin/api.c").read_text(encoding="utf-8")
    verbs = {(method, path, frozenset(role.strip().removeprefix("ROLE_").lower() for role in roles.split("|")))
             for method, path, roles in re.findall(r'\{"\w+", "(GET|POST)", "([^"]+)",\s*([A-Z_|\s]+),', source)}
    shown = {(method, path, frozenset(roles.split(", "))) for method, path, roles in re.findall(
        r"^\| `(GET|POST) ([^`?{]+)[^`]*` \| ([a-z, ]+) \|", page("reference/api.md"), re.MULTILINE)}
    assert len(verbs) >= 8 and shown == verbs
