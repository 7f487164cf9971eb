"""Headless Chromium, as an operator uses it: it clicks, types, waits for what can be seen, and takes pictures.

    with Browser() as browser:
        browser.open("http://127.0.0.1:9188/console/")
        browser.fill("Token", "…").press("Log in")
        browser.see("Overview")
"""

import contextlib
import functools
import json
import os
import subprocess

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from drivers.harness import CACHE, build_once, locked, npm_install

from .process import wait_for

AXE = "axe-core@4.14.1"
WIDE, NARROW = (1280, 900), (390, 844)
STALE = (NoSuchElementException, StaleElementReferenceException)


@functools.cache
def _axe():
    """The source of axe-core, installed once into the cache."""
    folder = os.path.join(CACHE, "axe")
    with locked(folder):
        build_once(os.path.join(folder, "made-from"), AXE, lambda: subprocess.run(
            npm_install(folder, AXE), check=True, capture_output=True, timeout=600))
    with open(os.path.join(folder, "node_modules/axe-core/axe.min.js"), encoding="utf-8") as file:
        return file.read()


class Browser:
    def __init__(self, size=WIDE, theme="light"):
        options = webdriver.ChromeOptions()
        # Chromium refuses to run as root with its sandbox; pages here are our own.
        for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "hide-scrollbars",
                     "disable-background-networking", "force-device-scale-factor=1", "lang=en-GB"):
            options.add_argument(f"--{word}")
        options.add_argument(f"--window-size={WIDE[0]},{WIDE[1]}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # as it is called, no proxy stands between
        options.add_argument("--no-proxy-server")
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.resize(size)
        self.prefer(theme)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    # --- the window ---------------------------------------------------------------------------

    def resize(self, size):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False})

    def prefer(self, theme):
        """What the system of the user says: light or dark."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})

    def open(self, url):
        self.driver.get(url)
        return self

    def go(self, fragment):
        self.driver.execute_script("location.hash = arguments[0]", fragment)
        return self

    def picture(self, path, whole=False):
        """whole: also what lies below the window."""
        if whole:
            height = self.script("return document.documentElement.scrollHeight")
            width = self.script("return innerWidth")
            before = self.script("return innerHeight")
            self.resize((width, max(height, before)))
        self.driver.save_screenshot(str(path))
        if whole:
            self.resize((width, before))

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    # --- what can be seen ---------------------------------------------------------------------

    @property
    def text(self):
        return self.script("return document.body.innerText")

    def see(self, *texts, seconds=30):
        """Waits until all texts can be seen at once."""
        wait_for(lambda: all(text in self.text for text in texts), seconds,
                 lambda: f"{texts} in {self.driver.current_url}:\n{self.text[:3000]}")
        return self

    def find(self, selector):
        return wait_for(lambda: self._found(selector), 30, lambda: f"{selector} in:\n{self.text[:3000]}")

    def _found(self, selector):
        with contextlib.suppress(*STALE):
            return next((each for each in self.driver.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()), None)

    def _named(self, kinds, name):
        """The control of one of these kinds with exactly this name."""
        for each in reversed(self.driver.find_elements(By.CSS_SELECTOR, kinds)):
            with contextlib.suppress(*STALE):
                if each.is_displayed() and each.is_enabled() and each.accessible_name.strip() == name:
                    return each
        return None

    def control(self, kinds, name):
        return wait_for(lambda: self._named(kinds, name), 30, lambda: f"the control {name} in:\n{self.text[:3000]}")

    # --- an operator with a mouse -------------------------------------------------------------

    def press(self, name):
        """A button or link; the page may be drawn anew meanwhile."""
        def pressed():
            with contextlib.suppress(*STALE):
                self.control("button, a", name).click()
                return True

        wait_for(pressed, 30, f"a click on {name}")
        return self

    def tick(self, name):
        self.control("input[type=checkbox]", name).click()
        return self

    def fill(self, name, value):
        """name: begins the label of a field."""
        field = wait_for(lambda: self._labelled(name), 30, f"the field {name}")
        field.clear()
        field.send_keys(value)
        return self

    def choose(self, name, value):
        field = wait_for(lambda: self._labelled(name), 30, f"the field {name}")
        for option in field.find_elements(By.TAG_NAME, "option"):
            if option.text == value:
                option.click()
                return self
        raise AssertionError(f"{name} has no {value}")

    def _labelled(self, name):
        for label in reversed(self.driver.find_elements(By.CSS_SELECTOR, "label")):
            with contextlib.suppress(*STALE):
                if label.is_displayed() and label.text.startswith(name):
                    return label.find_element(By.CSS_SELECTOR, "input, select, textarea")
        return None

    # --- and with a keyboard only -------------------------------------------------------------

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()
        return self

    def back_to(self, name, most=80):
        """Shift and Tab until the control has the focus."""
        for _ in range(most):
            ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
            if self.focused().startswith(name):
                return self
        raise AssertionError(f"Shift and Tab never reach {name}")

    def focused(self):
        """The accessible name of the element that has the focus."""
        return self.driver.switch_to.active_element.accessible_name.strip()

    def tab_to(self, name, most=80):
        """Tabs until the control has the focus."""
        seen = []
        for _ in range(most):
            self.keys(Keys.TAB)
            with contextlib.suppress(*STALE):
                seen.append(self.focused())
                if seen[-1].startswith(name):
                    return self
        raise AssertionError(f"Tab never reaches {name}: {seen}")

    # --- faults of a page ---------------------------------------------------------------------

    def violations(self):
        """What axe-core finds, as lines."""
        if not self.script("return Boolean(window.axe)"):
            self.script(_axe())
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document).then(result => done(JSON.stringify(result.violations)))")
        return [f"{each['id']}: {node['html'][:200]}: {node.get('failureSummary', '')}"
                for each in json.loads(found) for node in each["nodes"]]

    def errors(self):
        """Errors of scripts, and refusals of the policy of the page; not the statuses of requests."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]]

    def overflowing(self):
        """Texts that leave their box, and so may cover others."""
        return self.script("""return [...document.querySelectorAll("main dd, main dt, main td, main li, main button")]
            .filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0).map(each => each.textContent)""")

    def is_too_wide(self):
        return self.script("return document.documentElement.scrollWidth > innerWidth")
