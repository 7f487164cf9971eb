"""The drivers of which run-tests tries each."""

from drivers.harness import Driver, go, java, node, rust

EACH_TIME = {"psycopg", "pgjdbc", "pgx"}  # the others by turns, one a run

PYTHON = ("python3", "-m", "venv", "{cache}/venv")


def python(name, *packages, **options):
    """A program main.py in a virtual environment with these packages."""
    return Driver(name, ("{cache}/venv/bin/python", "main.py"),
                  build=(PYTHON, ("{cache}/venv/bin/pip", "install", "-q", "--disable-pip-version-check",
                                  *packages)), **options)


def refused(*ways):
    """Of a program that tries to write bytes into a column of text in these ways."""
    return {f"{way}-{case}": rule for way in ways for case, rule in (
        ("payload", "payload_is_not_hex_of_bytes"), ("key", "key_is_not_hex_of_bytes"),
        ("both", "payload_is_text_or_bytes"))}


NODE = ("pg@8.16.3", "postgres@3.4.7", "knex@3.1.0", "sequelize@6.37.7", "typeorm@0.3.27")


def with_node(name, **ways):
    """One program writes through each driver of Node. Where a driver sends bytes to a column of text as they are,
    PostgreSQL refuses those that are no UTF-8 (22021)."""
    return node(name, *NODE, run=f"main.js {name}", folder="node",
                refused={way.replace("_", "-"): rule for way, rule in ways.items()})


HEX = "payload_is_not_hex_of_bytes"
DRIVERS = [
    go("pgx", "go", refused={f"{mode}-{way}": HEX for mode in ("exec", "simple-protocol")
                             for way in ("insert-bytes-as-text", "insert-no-bytes-as-text", "publish-bytes-as-text")}),
    go("libpq", "go", refused={f"{mode}-copy-bytes-as-text": HEX for mode in ("text", "binary")}),
    go("gorm", "go", refused={"simple-bytes-as-text": HEX}),
    rust("tokio-postgres", refused={"typed-bytes-as-text": HEX}),
    java("pgjdbc", refused=refused("bytes", *(f"{mode}-bytes-as-text" for mode in (
        "rewritten", "simple", "extended", "unspecified")))),
    java("hibernate", refused={"both": "payload_is_text_or_bytes"}),
    python("psycopg", "psycopg[binary]==3.2.3", "psycopg2-binary==2.9.10",
           refused={f"{version}-bytes-{how}": "payload_is_not_hex_of_bytes"
                    for version in (2, 3) for how in ("as-text", "in-text-column")}),
    python("sqlalchemy", "SQLAlchemy[asyncio]==2.0.36", "psycopg[binary]==3.2.3", "psycopg2-binary==2.9.10", "asyncpg==0.30.0",
           refused={f"{name}-bytes-as-text": "payload_is_not_hex_of_bytes" for name in ("psycopg", "psycopg2", "asyncpg")}
                   | {f"{name}-bytes-in-text-column": "payload_is_not_hex_of_bytes" for name in ("psycopg", "psycopg2")}),
    python("django", "Django==5.2.8", "psycopg[binary]==3.2.3", refused={"bytes-as-text": "payload_is_not_hex_of_bytes"}),
    Driver("pdo", ("php", "main.php"), install=("php",),
           refused={way: "payload_is_not_hex_of_bytes" for way in (
               "prepared-bytes-as-text", "unprepared-bytes-as-text", "emulated-bytes-as-text", "emulated-bytes-in-text-column")}),
    Driver("ruby-pg", ("ruby", "main.rb"), install=("ruby",), refused={"bytes-as-text": "payload_is_not_hex_of_bytes"}),
    with_node("pg", bytes_as_text="22021", publish_bytes_as_text="22021", bytes_by_cast=HEX),
    with_node("postgres", bytes_as_text=HEX, unsafe_bytes_as_text=HEX),
    with_node("knex", bytes_as_text="22021", bytes_by_cast=HEX),
    with_node("sequelize", bytes_as_text="22021", bulk_bytes_as_text=HEX, object_as_text="SequelizeValidationError"),
    with_node("typeorm", bytes_as_text="22021"),
]
