"""Browsers, each with one page of the console open: clients.py PORT TOKEN COUNT; they begin with a line of the input, end with
a second one, and their number of requests is printed.

The requests are those that the files of relay/console make for their pages; a page that draws itself anew by the clock does so
every five seconds (REFRESH_MS). The lists draw themselves anew only for their reader, who is taken to do so as often.
"""
import http.client
import json
import sys
import threading

REFRESH_S = 5
SERIES = [f"/v1/series?name={name}&step=5" for name in (
    "relay_published_total", "relay_unpublished_rows", "relay_latency_commit_to_read_seconds",
    "relay_latency_read_to_produce_seconds", "relay_latency_produce_to_ack_seconds")]
PAGES = [
    ["/v1/overview", *SERIES],                                         # page_overview.js, lines.js
    ["/v1/publishers"],                                                # page_publishers.js
    ["/v1/publishers", "/v1/parked?publisher=main&limit=50&totals=yes"],  # page_parked.js
    ["/v1/lookback?limit=100"],                                        # page_lookback.js
]


class Browser:
    def __init__(self, port, token):
        self.port, self.cookie, self.requests = port, None, 0
        answer, _ = self.request("POST", "/console/login", json.dumps({"token": token}))
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def request(self, method, path, body=None, timeout=30):
        """The interface ends each connection behind its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{self.port}"} if body else {}
        if self.cookie:
            headers["Cookie"] = self.cookie
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        self.requests += 1
        # a relay without look-back has none of its ids
        if answer.status != 200 and not path.startswith("/v1/lookback"):
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read()}")
        if path == "/v1/events":
            return answer, connection
        answer.read()
        connection.close()
        return answer, connection


def listen(browser):
    """stream_worker.js: until the end of this process."""
    answer, _ = browser.request("GET", "/v1/events")
    while answer.readline():
        pass


def browse(port, token, number, over, done):
    browser = Browser(port, token)
    threading.Thread(target=listen, args=(browser,), daemon=True).start()
    while True:
        for path in PAGES[number % len(PAGES)]:
            browser.request("GET", path)
        if over.wait(REFRESH_S):
            break
    done.append(browser.requests)


def main():
    port, token, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    over, done = threading.Event(), []
    sys.stdin.readline()
    threads = [threading.Thread(target=browse, args=(port, token, number, over, done)) for number in range(count)]
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    over.set()
    for thread in threads:
        thread.join()
    if len(done) < count:
        sys.exit("a client failed")
    print(sum(done))


if __name__ == "__main__":
    main()
