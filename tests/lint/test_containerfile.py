"""A library that the program gains is named in each place that installs libraries. (tests/heavy/test_container.py builds
the image; it does not run each time.)"""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD, RUN = re.findall(r"--no-install-recommends (.*?)(?: &&|\n)",
                        (ROOT / "relay/packaging/Containerfile").read_text().replace("\\\n", ""))


def names(text):
    return set(re.findall(r"[a-z][a-z0-9.+-]+", text))


def test_the_build_has_the_packages_that_the_debian_package_needs():
    control = (ROOT / "relay/packaging/debian/control").read_text()
    needed = re.search(r"^Build-Depends: (.*?)^\S", control, re.MULTILINE | re.DOTALL)[1]
    alone = re.sub(r"\(.*?\)|:any|pkgconf \|", "", needed)
    assert names(BUILD) == names(alone) - {"debhelper-compat"} | {"binutils", "gcc", "libc6-dev"}


def test_the_image_has_the_libraries_of_the_page():
    page = (ROOT / "docs/start/install.md").read_text()
    listed = re.search(r"`apt-get\s+install (librdkafka1.*?)`", page, re.DOTALL)[1]
    assert names(RUN) == names(listed) | {"ca-certificates"}
