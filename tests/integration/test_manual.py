"""Manual pages and completion: both come from the tables of commands and keys, as the reference pages do."""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest

from support.relay import bench_binary, binary

BUILD = pathlib.Path(binary()).resolve().parents[2]


def said(*arguments, program=None):
    return subprocess.run([program or binary(), *arguments], capture_output=True, text=True, check=True).stdout


def commands():
    return re.findall(r"^## ([a-z].*)$", said("help", "--markdown"), re.M)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{name of a page: its path}, written by the programs."""
    folder = tmp_path_factory.mktemp("man")
    said("help", "--man", str(folder))
    (folder / "outbox-relay-bench.1").write_text(said("--man", program=bench_binary()))
    (folder / "outbox-relay.ini.5").write_text(said("config", "--print-man"))
    return {path.name: path for path in folder.iterdir()}


def shown(path):
    """The page as plain text: a character that is printed over another one replaces it."""
    text = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=200", path], capture_output=True, text=True,
                          check=True).stdout
    return " ".join(re.sub(".\b", "", text).split())


def test_every_command_has_a_page(pages):
    names = {f"outbox-relay-{command.replace(' ', '-')}.1" for command in commands()}
    assert set(pages) == names | {"outbox-relay.1", "outbox-relay-bench.1", "outbox-relay.ini.5"}


def test_mandoc_finds_nothing_to_mend(pages):
    done = subprocess.run(["mandoc", "-T", "lint", *pages.values()], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_a_page_has_the_words_of_the_help(pages):
    text = shown(pages["outbox-relay-publisher-create.1"])
    assert "outbox-relay publisher create [--shards N]" in text
    assert "A publisher that no process runs keeps partitions from being dropped." in text
    assert "--start now|beginning|TIME" in text and "2026-01-02T03:04:05Z" in text
    assert re.search("outbox-relay publisher create .* NAME", text)


def test_the_page_of_the_configuration_has_every_key(pages):
    text = shown(pages["outbox-relay.ini.5"])
    reference = said("config", "--print-reference")
    rows = re.findall(r"^\| `([a-z_.]+)` \|", reference, re.M)
    assert len(rows) > 100
    assert [key for key in rows if f" {key} " not in text] == []
    assert "OUTBOX_RELAY_TOPIC_SHOP_ORDERS_ON_REFUSAL" in text


def test_a_folder_that_cannot_be_written_is_named():
    done = subprocess.run([binary(), "help", "--man", "/proc/none"], capture_output=True, text=True)
    assert done.returncode == 74
    assert done.stderr.startswith("outbox-relay: cannot write to /proc/none: ")


def test_another_shell_is_refused():
    done = subprocess.run([binary(), "completion", "tcsh"], capture_output=True, text=True)
    assert done.returncode == 64
    assert done.stderr == ("outbox-relay: no completion for the shell 'tcsh'; there is one for bash, zsh and fish\n")


class Terminal:
    """A shell on a terminal of its own, in which somebody types."""

    def __init__(self, command, folder):
        self.ours, its = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "HOME": str(folder), "ZDOTDIR": str(folder), "INPUTRC": "/dev/null",
                       "PATH": f"{os.path.dirname(binary())}:{os.environ['PATH']}"}
        self.child = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment,
                                      start_new_session=True)
        os.close(its)

    def write(self, words):
        os.write(self.ours, words.encode())

    def read_until(self, *words):
        """Until all of these words stand there; returns all of it."""
        seen, end = "", time.monotonic() + 60
        while not all(word in seen for word in words):
            assert time.monotonic() < end, seen
            if select.select([self.ours], [], [], 1)[0]:
                seen += os.read(self.ours, 4096).decode(errors="replace")
            seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)  # colours and moves
        return seen

    def close(self):
        self.child.kill()
        self.child.wait()
        os.close(self.ours)


# How each begins, how it reads the script, and the keys that list what may follow.
SHELLS = {"bash": (["bash", "--norc", "--noprofile", "-i"], "source <(outbox-relay completion bash)", "\t\t"),
          "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u; source <(outbox-relay completion zsh)", "\t")}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_tab_completes_what_is_typed(shell, tmp_path):
    command, source, keys = SHELLS[shell]
    terminal = Terminal(command, tmp_path)
    try:
        terminal.write(f"{source}; echo rea''dy\n")
        terminal.read_until("ready")
        terminal.write("outbox-relay publ\t")
        terminal.read_until("outbox-relay publisher ")
        terminal.write(keys)
        terminal.read_until("create", "drop", "list", "rebase", "split")
        terminal.write("create --sh\t")
        terminal.read_until("--shards ")
    finally:
        terminal.close()


def fish(tmp_path, line):
    script = tmp_path / "completion.fish"
    script.write_text(said("completion", "fish"))
    done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True,
                          text=True, check=True, env={**os.environ, "HOME": str(tmp_path)})
    return dict(row.partition("\t")[::2] for row in done.stdout.splitlines())


def test_fish_completes_what_is_typed(tmp_path):
    assert fish(tmp_path, "outbox-relay publisher ") == {
        command.split()[1]: re.search(rf"^\| `{command}` \| (.*) \|$", said("help", "--markdown"), re.M)[1]
        for command in commands() if command.startswith("publisher ")}
    assert set(fish(tmp_path, "outbox-relay --config x migrate up --")) == {
        "--config", "--help", "--max-message-bytes", "--no-roles", "--postgres"}
    assert "/etc/hosts" in fish(tmp_path, "outbox-relay run --config /etc/hos")


BASH_COMPLETES = """
source {script}
compopt() {{ :; }}
COMP_WORDS=({words} '')
COMP_CWORD={count}
_outbox_relay
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("command", commands())
def test_every_option_of_the_help_is_completed(command, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(said("completion", "bash"))
    words = ["outbox-relay", *command.split()]
    found = set(subprocess.run(["bash", "-c", BASH_COMPLETES.format(script=script, words=" ".join(words), count=len(words))],
                               capture_output=True, text=True, check=True).stdout.split())
    options = set(re.findall(r"^  (--[a-z-]+)", said(*command.split(), "--help"), re.M))
    assert options <= found


def test_the_pages_and_scripts_are_built_as_the_programs_print_them():
    folder = BUILD / "relay/packaging"
    for shell, name in (("bash", "outbox-relay"), ("zsh", "_outbox-relay"), ("fish", "outbox-relay.fish")):
        assert (folder / name).read_text() == said("completion", shell)
    assert (folder / "outbox-relay.ini.5").read_text() == said("config", "--print-man")
