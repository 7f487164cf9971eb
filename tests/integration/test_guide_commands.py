"""The commands of the guides, as they stand and in the order of each page, on a terminal where somebody
answers yes. The world has what the pages speak of: the ids 4711 and 4712, parked or undecided, rows of
January, a partition of November."""

import pathlib
import re
import shlex

import pytest

from support.api import OPERATOR
from support.guide import calls_of
from support.lookback_rows import Reader, prepare
from support.process import free_port, wait_for
from support.relay import Relay, on_a_terminal

GUIDES = pathlib.Path(__file__).resolve().parents[2] / "docs/guide"
LIMIT = 2000  # of the topic at first, in bytes
NOTHING_TO_DO = 65
# No id of the look-back here is older than 2026.
REFUSED = {"lookback rollback --all --type order --to 2026-01-02": NOTHING_TO_DO}


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
            "OUTBOX_RELAY_PUBLISHER_MAX_ATTEMPTS": "1", "OUTBOX_RELAY_POSTGRES_RETAIN": "3650d"}


class World:
    """What the commands of a page find. names: of the page, and of this world."""

    def __init__(self, database, kafka, topic, settings, folder):
        self.database, self.kafka, self.topic, self.settings = database, kafka, topic, settings
        self.folder = folder
        self.names = {"/var/lib/shop": str(folder)}
        self.relay = None

    def dedup(self):
        self.database.execute("create table orders (id bigint, created_at timestamptz)")
        self.database.execute("insert into orders select i, now() from generate_series(1, 100) i")

    def lookback(self):
        reader = Reader(self.database)
        *_, clock = reader.apply(*(prepare(id, 0, expire_ms=3_600_000) for id in ("4711", "4712")))
        reader.apply(horizon=clock)

    def operate(self):
        self.database.execute("select outbox.partition_make('message', '2026-11-25', '2026-11-26')")

    def parked(self):
        self.names["topic=orders"] = f"topic={self.topic}"
        self.kafka.alter_topic(self.topic, max_message_bytes=LIMIT)
        self.database.execute("alter sequence outbox.message_id_seq restart 4711")
        self.database.execute("insert into outbox.message (topic, key, payload) values (%s, 'a', repeat('x', 5000))",
                              (self.topic,))
        self.database.execute("insert into outbox.message (topic, key, payload, partition) "
                              "values (%s, 'b', '{}', 99)", (self.topic,))
        self.relay = Relay(self.settings).start()
        wait_for(lambda: self.database.execute("select count(*) from outbox.parked where state = 'dead'") == [(2,)],
                 60, "two dead messages")
        self.kafka.alter_topic(self.topic, max_message_bytes=1_048_588)  # the cause is repaired

    def replay(self):
        again = self.kafka.create_topic(f"{self.topic}.again")
        self.names |= {"topic=orders": f"topic={self.topic}", "--to orders.again": f"--to {again}"}
        self.database.execute("insert into outbox.message (topic, key, payload, created_at) select %s, 'k', '{}', "
                              "timestamptz '2026-01-02 12:00Z' + i * interval '1 h' from generate_series(1, 9) i",
                              (self.topic,))

    def nothing(self):
        pass

    def configure(self, text, **files):
        """A configuration, and files beside it: {word of the page and of the configuration: contents}."""
        for name, contents in files.items():
            path = self.folder / name.rpartition("/")[2]
            path.write_text(contents, encoding="utf-8")
            self.names[name] = str(path)
            text = text.replace(name, str(path))
        (self.folder / "relay.ini").write_text(text, encoding="utf-8")
        self.settings["OUTBOX_RELAY_CONFIG"] = str(self.folder / "relay.ini")

    def sidecar(self, section="", more="", **files):
        """With an interface for operators."""
        self.configure(f"""
            {section}
            [deliver "orders"]
            topics = {self.topic}
            group = {self.topic}
            url = http://127.0.0.1:9/
            networks = 127.0.0.1
            path = {self.folder}/state
            {more}
            {OPERATOR}""", **files)
        self.settings["OUTBOX_RELAY_API_LISTEN"] = f"127.0.0.1:{free_port()}"

    def rules(self):
        self.sidecar(more="rules_file = /etc/outbox-relay/rules.txt", **{
            "/etc/outbox-relay/rules.txt": "sliding name=burst most=5 within=10s key=key action=drop\n",
            "new-rules.txt": "sliding name=burst most=9 within=10s key=key action=drop\n"})
        self.relay = Relay(self.settings).start().wait_ready()

    def rules_of_a_user(self):
        page = (GUIDES / "rules-of-a-user.md").read_text(encoding="utf-8")
        ini, rules = (re.search(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
                      for kind in ("ini", "json"))
        self.configure(ini, **{"/etc/outbox-relay/push-rules.json": rules})

    def archive(self):
        self.database.execute("select outbox.partition_make('message', '2026-01-02', '2026-01-03')")
        self.replay()
        self.settings |= {"OUTBOX_RELAY_POSTGRES_RETENTION": "archive", "OUTBOX_RELAY_POSTGRES_RETAIN": "7d",
                          "OUTBOX_RELAY_POSTGRES_ARCHIVE_PATH": str(self.folder),
                          "OUTBOX_RELAY_POSTGRES_UPKEEP_INTERVAL": "100ms"}
        self.relay = Relay(self.settings).start()
        wait_for(lambda: self.database.execute("select state from outbox.archive") == [("archived",)], 60,
                 "an archived partition")

    def alerts(self):
        dead = self.kafka.create_topic(f"{self.topic}.dead", 1)
        self.sidecar('[publisher "main"]', f"dead_letter_topic = {dead}")
        self.lookback()
        self.parked()

    def close(self):
        if self.relay:
            self.relay.close()


SEEDS = {"alerts.md": World.alerts, "archive.md": World.archive, "dedup.md": World.dedup, "lookback-barrier.md": World.lookback,
         "lookback-operate.md": World.lookback, "operate.md": World.operate, "other-queues.md": World.nothing,
         "parked.md": World.parked, "replay.md": World.replay, "rules.md": World.rules,
         "rules-of-a-user.md": World.rules_of_a_user, "upgrade.md": World.nothing}


@pytest.mark.parametrize("page", SEEDS)
def test_the_commands_of_a_guide_do_what_the_page_says(page, database, kafka, topic, settings, tmp_path):
    world = World(database, kafka, topic, settings, tmp_path)
    commands = calls_of((GUIDES / page).read_text(encoding="utf-8"))
    assert commands
    try:
        SEEDS[page](world)
        for command in commands:
            typed = command
            for name, there in world.names.items():
                typed = typed.replace(name, there)
            wanted = next((status for begin, status in REFUSED.items() if command.startswith(begin)), 0)
            status, shown = on_a_terminal(shlex.split(typed), settings, b"yes\n")
            assert status == wanted, f"{page}: outbox-relay {typed}: {status}\n{shown}"
    finally:
        world.close()


def test_every_guide_with_commands_is_typed():
    with_commands = {page.name for page in GUIDES.glob("*.md") if calls_of(page.read_text(encoding="utf-8"))}
    assert with_commands == set(SEEDS)
