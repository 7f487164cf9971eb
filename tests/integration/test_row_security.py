"""A policy (row level security) never makes the relay take hidden rows for published ones."""

import pytest

from support.auditor import count_records
from support.relay import run_command

HIDE = """
    CREATE POLICY only_old ON outbox.message FOR SELECT USING (id <= 10);
    ALTER TABLE outbox.message ENABLE ROW LEVEL SECURITY"""


def publish(database, topic, count):
    database.execute("SELECT outbox.publish(%s, 'k' || n, 'v') FROM generate_series(1, %s) n", (topic, count))


def test_hidden_rows_are_an_error_and_are_published_later(database, kafka, topic, login, make_relay):
    relay = make_relay(database_url=login("outbox_relay")["DATABASE_URL"]).wait_ready()
    publish(database, topic, 10)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10, what="the first rows")
    database.execute(HIDE)
    publish(database, topic, 10)
    assert "row-level security policy" in relay.wait_event("log_call_failed")[-1]["error"]
    assert count_records(kafka.bootstrap, [topic]) == 10
    database.execute("ALTER TABLE outbox.message DISABLE ROW LEVEL SECURITY")
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 20, what="the hidden rows")


@pytest.mark.parametrize("owner", [False, True])
def test_doctor_names_the_policy(owner, database, kafka, login):
    settings = {"OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
                **({"DATABASE_URL": database.dsn} if owner else login("outbox_relay"))}

    def doctor():
        status, output, error = run_command(["doctor"], settings)
        assert status in (0, 1), error
        return status, output

    said = "row level security"
    status, output = doctor()
    assert status == 0 and said not in output
    database.execute(HIDE + "; ALTER TABLE outbox.log ENABLE ROW LEVEL SECURITY")
    status, output = doctor()
    severity = "warn" if owner else "fail"
    assert f"[{severity}]   postgres main: table message has {said} (policies: only_old)" in output
    assert f"[{severity}]   postgres main: table log has {said} (no policy)" in output
    assert status == (0 if owner else 1)
    assert "cure: alter table outbox.message disable row level security" in output
    database.execute("ALTER TABLE outbox.message DISABLE ROW LEVEL SECURITY;"
                     "ALTER TABLE outbox.log DISABLE ROW LEVEL SECURITY")
    status, output = doctor()
    assert status == 0 and said not in output


def test_doctor_names_roles_and_databases_with_another_form_of_bytes(database, kafka):
    settings = {"OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "DATABASE_URL": database.dsn}
    database.execute(f'ALTER DATABASE "{database.name}" SET bytea_output = escape')
    database.execute(f'ALTER ROLE outbox_writer IN DATABASE "{database.name}" SET bytea_output = escape')
    output = run_command(["doctor"], settings)[1]
    assert f"bytea_output is escape for database {database.name}: " in output
    assert f"bytea_output is escape for role outbox_writer in database {database.name}: " in output
    assert f"cure: alter role outbox_writer in database {database.name} reset bytea_output" in output
