"""The systems of the comparison. Each has

    role        what it logs in to PostgreSQL as, by which its sessions are known
    sql         a writer's statement: $1 topic, $2 key, $3 payload
    prepare     makes what the application's owner makes, in an empty database
    fill        numbers first to last, as the statement of the writer would write them
    start, wait_running, stop, kill; process: the running one (support.process.Process)
"""

import json
import os
import urllib.error
import urllib.request

from support.process import Process, free_port, temporary_folder, wait_for
from support.relay import Relay, run_command

# As in write.c: 300 bytes, hexadecimal digits for the most part.
PAYLOAD = """format('{"n":%s,"t":0,"customer":"customer-%s","note":"%s"}', n, n % 10000,
    left(repeat(md5(n::text), 4) || repeat(md5((-n)::text), 4), 236))"""
KEY = "'customer-' || n % 10000"


class OutboxRelay:
    name = "relay"
    title = "outbox-relay"
    role = "relay"
    sql = "select outbox.publish($1::text, $2::text, $3::text)"

    def __init__(self, options):
        self.program = options.relay
        self.relay = None

    def prepare(self, postgres, database, kafka, topic):
        settings = {"DATABASE_URL": postgres.dsn(database, self.role),
                    "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
        status, _, errors = run_command(["migrate", "up"], settings, program=self.program)
        if status != 0:
            raise RuntimeError(f"migrate up: {errors}")
        self.relay = Relay(settings, program=self.program)
        self.topic = topic

    def fill(self, first, last):
        return (f"""insert into outbox.message (topic, key, payload)
            select '{self.topic}', {KEY}, {PAYLOAD}
            from generate_series({first}, {last}) as r (n)""", "outbox.message")

    @property
    def process(self):
        return self.relay.process

    def start(self):
        self.relay.start()

    def wait_running(self, _):
        self.relay.wait_ready()

    def stop(self):
        self.relay.stop(timeout=60)

    def kill(self):
        self.relay.kill()

    def end(self):
        if self.relay and self.relay.process:
            self.relay.close()


# bin/connect-standalone.sh and bin/kafka-run-class.sh of Apache Kafka 3.9.1
JVM = ["-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
       "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
       "-Djava.awt.headless=true"]
LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    # every jar is on the class path, where nothing has to be searched for
    "plugin.discovery": "service_load",
}
CONNECTOR = {
    "name": "peer",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": 1,
    "topic.prefix": "peer",
    "plugin.name": "pgoutput",
    "slot.name": "peer",
    "publication.name": "peer",
    "publication.autocreate.mode": "filtered",
    "table.include.list": "public.outbox",
    "snapshot.mode": "no_data",
    "tombstones.on.delete": "false",
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.route.topic.replacement": "${routedByValue}",
}
TUNED_WORKER = {
    "producer.compression.type": "lz4",
    "producer.linger.ms": 5,
    "producer.batch.size": 262144,
}
TUNED_CONNECTOR = {
    "poll.interval.ms": 10,
    "max.batch.size": 20480,
    "max.queue.size": 81920,
}


class Debezium:
    name = "default"
    title = "Debezium, default"
    role = "debezium"
    sql = ("insert into outbox (id, aggregatetype, aggregateid, type, payload) "
           "values (gen_random_uuid(), $1::text, $2::text, 'changed', $3::text)")
    worker = {}
    connector = {}

    def __init__(self, options):
        self.jars = options.jars
        self.process = None

    def prepare(self, postgres, database, kafka, topic):
        postgres.execute("""create table outbox (id uuid primary key, aggregatetype text not null,
            aggregateid text not null, type text not null, payload text)""", database=database)
        self.topic = topic
        self.folder = temporary_folder("debezium")
        self.port = free_port()
        worker = {**WORKER, **self.worker, "bootstrap.servers": kafka.bootstrap,
                  "offset.storage.file.filename": os.path.join(self.folder, "offsets"),
                  "listeners": f"http://127.0.0.1:{self.port}"}
        connector = {**CONNECTOR, **self.connector, "database.hostname": "127.0.0.1",
                     "database.port": postgres.port, "database.dbname": database,
                     "database.user": self.role, "database.password": "trusted"}
        self._write("worker.properties", worker)
        self._write("connector.properties", connector)
        with open(os.path.join(self.folder, "log4j.properties"), "w") as file:
            file.write(LOG4J)

    def fill(self, first, last):
        return (f"""insert into outbox (id, aggregatetype, aggregateid, type, payload)
            select gen_random_uuid(), '{self.topic}', {KEY}, 'changed', {PAYLOAD}
            from generate_series({first}, {last}) as r (n)""", "outbox")

    def start(self):
        self.process = Process(
            ["java", *JVM, f"-Dlog4j.configuration=file:{self.folder}/log4j.properties",
             "-cp", os.path.join(self.jars, "*"),
             "org.apache.kafka.connect.cli.ConnectStandalone",
             os.path.join(self.folder, "worker.properties"),
             os.path.join(self.folder, "connector.properties")],
            os.path.join(self.folder, "log"), folder=self.folder)

    def wait_running(self, postgres):
        """Streaming: what is written from now on is in its slot."""
        wait_for(lambda: self._task_runs() and postgres.execute(
            "select 1 from pg_replication_slots where slot_name = 'peer' and active"),
            120, "Debezium's replication slot in use")

    def stop(self):
        self.process.stop(timeout=60)

    def kill(self):
        self.process.kill()

    def end(self):
        if self.process and self.process.running:
            self.process.kill()

    def _write(self, name, settings):
        with open(os.path.join(self.folder, name), "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def _task_runs(self):
        if not self.process.running:
            raise AssertionError(f"Kafka Connect ended:\n{self.process.tail()}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/connectors/peer/status",
                                        timeout=5) as answer:
                tasks = json.load(answer)["tasks"]
        except (urllib.error.HTTPError, OSError):
            return False
        if any(task["state"] == "FAILED" for task in tasks):
            raise AssertionError(f"Debezium's task failed:\n{tasks}")
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)


class DebeziumTuned(Debezium):
    name = "tuned"
    title = "Debezium, tuned"
    worker = TUNED_WORKER
    connector = TUNED_CONNECTOR


SYSTEMS = (Debezium, DebeziumTuned, OutboxRelay)
