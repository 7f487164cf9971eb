"""The pages of docs/guide whose code the tests run."""

from drivers.drivers import NODE
from drivers.guide_harness import Guide
from drivers.harness import npm_install
from drivers.readers import KAFKAJS


def python(page, program, *packages):
    """In a virtual environment with these packages."""
    return Guide(page, ("{cache}/venv/bin/python", program),
                 build=(("python3", "-m", "venv", "{cache}/venv"),
                        ("{cache}/venv/bin/pip", "install", "-q", "--disable-pip-version-check", *packages)))


JARS = "dependency:copy-dependencies", "-DoutputDirectory=libs"
JAVAC = ("mvn", "-q", "-B", *JARS), ("sh", "-c", "javac -d classes -cp 'libs/*' *.java")
KOTLIN = ("mvn", "-q", "-B", "compile", *JARS),


def java(page, program="Main", compiler=JAVAC):
    """With the dependencies of the pom.xml."""
    return Guide(page, ("java", "-XX:TieredStopAtLevel=1", "-cp", "classes:libs/*", program),
                 build=(("rm", "-rf", "libs", "classes"), *compiler), install=("kafka",))


def node(page, *packages):
    """A program main.mjs with these packages of npm, which must lie beside it."""
    return Guide(page, ("node", "main.mjs"), build=(npm_install("{folder}", *packages),), install=("npm",))


def go(page, program, *more):
    """A module with programs in its root or in folders, whose code may be on more pages."""
    return Guide(page, ("{folder}/programs/" + program,), build=(("go", "build", "-o", "{folder}/programs/", "./..."),),
                 install=("go",), more=more)


def rust(page):
    """A crate that has the name read or write."""
    return Guide(page, ("{cache}/target/debug/" + page.split("/")[0],),
                 build=(("cargo", "build", "--quiet", "--target-dir", "{cache}/target"),), install=("rust",))


READ = ("confluent-kafka==2.6.1", "kafka-python==2.2.15", "psycopg[binary]==3.2.3")
GUIDES = [
    rust("read/rust"),
    rust("write/rust"),
    java("read/java"),
    java("read/kotlin-spring", "billing.MainKt", KOTLIN),
    java("write/java"),
    java("write/kotlin-spring", "shop.MainKt", KOTLIN),
    node("read/node", "pg@8.16.3", KAFKAJS),
    node("write/node", *NODE),
    go("read/go", "franz", "read/go-sarama"),
    go("read/go", "sarama", "read/go-sarama"),
    python("read/python", "with_confluent.py", *READ),
    python("read/python", "with_kafka_python.py", *READ),
    go("write/go", "example"),
    Guide("write/php", ("php", "main.php"), install=("php",)),
    python("write/python", "main.py", "psycopg[binary]==3.2.3", "SQLAlchemy==2.0.36", "Django==5.2.8"),
    Guide("write/ruby", ("ruby", "main.rb"), install=("ruby",)),
    Guide("write/sql", ("bash", "main.sh"), install=("postgres",)),
]
