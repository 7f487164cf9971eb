"""The states of an id, and what moves it from one to another: found by doing to an id in each state
whatever can be done, by the functions that do it. docs/reference/lookback.md shows what is found.

What a record does, given what is known of its id, is the reader's to work out
(relay/lookback/batch.h, tests/unit/test_lookback_batch.c); here its rows are what it says there.
"""

import json
import pathlib
import re

from support.lookback_rows import Reader, claim, decide, prepare, settle

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOW = re.sub(r"\$[12]::text", "%s", (ROOT / "sql/queries/lookback_show.sql").read_text())
ID = "1"


class Life:
    """Of one id."""

    def __init__(self, database):
        self.database = database
        self.reader = Reader(database)

    def begin_anew(self):
        self.reader.cursor.execute(
            "truncate outbox.lookback, outbox.lookback_overdue, outbox.message, outbox.unique_ledger")

    def take_key(self):
        """Another message has the unique key of the prepare from now on."""
        self.reader.cursor.execute("select outbox.publish('orders', 'k', 'p', unique_key => 'k')")

    def state(self):
        cursor = self.reader.connection.cursor()
        cursor.execute(SHOW, ("order", ID))
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row)) for row in cursor]
        for row in rows:
            if row["state"] != "tombstone":
                return row["state"]
        return f"{rows[0]['told']} noted" if rows else "[*]"

    def _known(self, kind):
        return [row for row in self.reader.known(ID)[ID] if row[0] == kind]

    def prepared(self):
        if self._known("prepare"):
            return
        noted = [decide(ID, decision) for _, _, decision in self._known("tombstone")]
        self.reader.apply(prepare(ID, check_ms=0, unique_key="k", within_ms=60_000), *noted)

    def said(self, decision):
        if self._known("prepare"):
            self.reader.apply(decide(ID, decision, self.reader.prepared_at(ID)))
        elif not self._known("tombstone"):
            self.reader.apply({**decide(ID, decision), "op": "tombstone"})

    def due(self):
        *_, clock = self.reader.apply()
        self.reader.apply(horizon=clock)

    def answered(self, result, parks=False):
        asked = claim(self.database, 7)
        if asked:
            settle(self.database, 7, [(ID, asked[0][1], result, True, 0, parks)])

    def operated(self, verb):
        self.database.execute("select outbox.lookback_operate(%s, %s, 'because', false)",
                              (verb, json.dumps({"ids": [["order", ID]]})))


EVENTS = {
    "prepare": Life.prepared,
    "commit": lambda life: life.said("commit"),
    "rollback": lambda life: life.said("rollback"),
    "check_after is over": Life.due,
    "answer commit": lambda life: life.answered("commit"),
    "answer rollback": lambda life: life.answered("rollback"),
    "answer pending, or none": lambda life: life.answered("pending"),
    "max_attempts, pending_max or expires_after": lambda life: life.answered("unknown", parks=True),
    "operator commit": lambda life: life.operated("commit"),
    "operator rollback": lambda life: life.operated("rollback"),
    "operator retry": lambda life: life.operated("retry"),
}


def after(life, way, state, event, taken):
    """The state after the event; taken: another message has the unique key."""
    life.begin_anew()
    for step in way:
        EVENTS[step](life)
    assert life.state() == state
    if taken:
        life.take_key()
    EVENTS[event](life)
    return life.state()


def moves(life):
    """{(state, state): [event, …]}, of all states that can be reached; without those that stay."""
    ways, pending, found = {"[*]": []}, ["[*]"], {}
    while pending:
        state = pending.pop(0)
        for event in EVENTS:
            free = after(life, ways[state], state, event, False)
            if free != state:
                found.setdefault((state, free), []).append(event)
            if free not in ways:
                ways[free] = [*ways[state], event]
                pending.append(free)
            if "committed" in {free} - {state}:
                taken = after(life, ways[state], state, event, True)
                found.setdefault((state, taken), []).append(f"{event}, key taken")
    return found


def diagram(found):
    """The input of docs/figures/lookback_states.svg."""
    return "\n".join([
        "// States of an id of the look-back, and the events that move it",
        "digraph lookback_states {", "\trankdir=LR", "\tnodesep=0.4", "\tranksep=1.1",
        '\tstart [label="" shape=point]', *(
            f'\t"{"start" if one == "[*]" else one}" -> "{other}" [label="{chr(92) + "n"}"]'.replace(
                chr(92) + "n", (chr(92) + "n").join(events))
            for (one, other), events in found.items()), "}"]) + "\n"


def test_the_documentation_shows_every_move_of_an_id_and_no_other(database):
    found = moves(Life(database))
    shown = (ROOT / "docs/figures/lookback_states.dot").read_text(encoding="utf-8")
    assert shown == diagram(found), f"it is:\n{diagram(found)}"
    assert not [state for state, _ in found if state in ("committed", "rolled back")]
