"""Relays with a [deliver "billing"] section and no database, and what they leave."""

from support.api import OPERATOR, READER
from support.auditor import read_topics
from support.process import wait_for

CONFIG = """\
[kafka]
bootstrap.servers = {bootstrap}
session.timeout.ms = {session_ms}
[deliver "billing"]
topics = {topic}
group = {topic}
url = {url}
networks = 127.0.0.0/8
path = {path}
dead_letter_topic = {topic}.dead
commit_every = 100ms
retry_first = 50ms
retry_max = 200ms
dedup = bloom ids=100k rate=0.1% window=1h
"""


def configuration(bootstrap, topic, path, url, settings):
    """settings: keys of the section; None leaves one out. And session_ms: of the consumer."""
    text = CONFIG.format(bootstrap=bootstrap, topic=topic, path=path, url=url,
                         session_ms=settings.pop("session_ms", 6000))
    for name, value in settings.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{name} = ")]
        text = "\n".join([*lines, *([f"{name} = {value}"] if value is not None else [])])
    return text + "\n" + READER + OPERATOR


def dead_letters(kafka, topic, count):
    """Once there are so many."""
    def read():
        records = list(read_topics(kafka.bootstrap, [topic]))
        return records if len(records) >= count else None

    return wait_for(read, 60, f"{count} dead letters")
