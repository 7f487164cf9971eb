"""Each POST of docs/reference/openapi.json is a verb of the console that a browser test drives, or is for programs only."""

import re

from lint.test_lint import none_of, read
from support import openapi

CONSOLE = "relay/console/"
TESTS = ["tests/heavy/test_console.py", "tests/heavy/test_console_verbs.py", "tests/heavy/test_console_jobs.py"]
PUBLISHER = "`/v1/publishers/${encodeURIComponent(publisher)}/${verb}`"
JOB = "`/v1/jobs/${encodeURIComponent(job.id)}/${verb}`"
# route: the file of the console, its call there, and the test that makes an operator's way to it
VERBS = {
    "/console/login": ("api.js", '"/console/login"', "test_a_keyboard_is_enough"),
    "/v1/dead-letters/preview": ("page_dead_letters.js", 'post("/v1/dead-letters/preview"', "test_dead_letters_go_back"),
    "/v1/dead-letters/redrive": ("page_dead_letters.js", 'post("/v1/dead-letters/redrive"', "test_dead_letters_go_back"),
    "/v1/deliver/operate": ("page_sidecars.js", 'post("/v1/deliver/operate"', "test_a_sidecar_is_paused_and_resumed"),
    "/v1/jobs/{id}/cancel": ("page_jobs.js", JOB, "test_many_messages_are_retried_with_progress_cancel_and_resume"),
    "/v1/jobs/{id}/resume": ("page_jobs.js", JOB, "test_many_messages_are_retried_with_progress_cancel_and_resume"),
    "/v1/lookback/operate": ("page_lookback.js", 'post("/v1/lookback/operate"', "test_ids_of_the_look_back_are_asked_and_decided"),
    "/v1/lookback/preview": ("page_lookback.js", 'post("/v1/lookback/preview"', "test_ids_that_match_are_asked_at_once"),
    "/v1/parked/preview": ("page_parked.js", 'post("/v1/parked/preview"', "test_all_that_match_are_retried"),
    "/v1/parked/retry": ("page_parked.js", "post(`/v1/parked/${verb}`", "test_all_that_match_are_retried"),
    "/v1/parked/skip": ("page_parked.js", "post(`/v1/parked/${verb}`", "test_chosen_messages_are_skipped_with_a_reason"),
    "/v1/partitions": ("page_partitions.js", 'post("/v1/partitions"', "test_partitions_are_made_and_dropped"),
    "/v1/partitions/{name}/drop": ("page_partitions.js", "`/v1/partitions/${encodeURIComponent(row.partition)}/drop`",
                                   "test_partitions_are_made_and_dropped"),
    "/v1/publishers": ("page_publishers.js", 'post("/v1/publishers"', "test_a_publisher_is_created_and_dropped"),
    "/v1/publishers/{name}/drop": ("page_publishers.js", "`/v1/publishers/${encodeURIComponent(publisher.name)}/drop`",
                                   "test_a_publisher_is_created_and_dropped"),
    "/v1/publishers/{name}/pause": ("page_publishers.js", PUBLISHER, "test_a_publisher_is_paused_and_resumed"),
    "/v1/publishers/{name}/rebase": ("page_publishers.js", "`/v1/publishers/${encodeURIComponent(publisher.name)}/rebase`",
                                     "test_a_restored_database_publishes_again_after_a_rebase"),
    "/v1/publishers/{name}/resume": ("page_publishers.js", PUBLISHER, "test_a_publisher_is_paused_and_resumed"),
    "/v1/publishers/{name}/split": ("page_publishers.js", "`/v1/publishers/${encodeURIComponent(publisher.name)}/split`",
                                    "test_a_publisher_is_split"),
    "/v1/replays": ("page_replays.js", 'post("/v1/replays"', "test_messages_are_replayed_with_preview_progress_cancel_and_resume"),
    "/v1/replays/preview": ("page_replays.js", 'post("/v1/replays/preview"',
                            "test_messages_are_replayed_with_preview_progress_cancel_and_resume"),
    "/v1/verifications": ("page_publishers.js", 'post("/v1/verifications"', "test_a_publisher_is_verified"),
}
FOR_PROGRAMS = {
    "/v1/lookback/prepare": "an application announces its message before its transaction",
    "/v1/lookback/commit": "an application tells that its transaction committed; an operator decides with /v1/lookback/operate",
    "/v1/lookback/rollback": "an application tells that its transaction did not commit; an operator as above",
}


def test_every_post_is_a_verb_of_the_console_or_for_programs():
    routes = {path for path, operations in openapi.document()["paths"].items() if "post" in operations}
    assert not VERBS.keys() & FOR_PROGRAMS.keys()
    none_of(sorted(routes - VERBS.keys() - FOR_PROGRAMS.keys()), "routes that the console lacks: give them a verb, a test and a row here:")
    none_of(sorted((VERBS.keys() | FOR_PROGRAMS.keys()) - routes), "rows of routes that openapi.json does not have:")


def test_every_verb_is_called_where_its_row_says_and_has_a_test():
    tests = set(re.findall(r"^def (test_\w+)", "".join(map(read, TESTS)), re.MULTILINE))
    none_of([f"{route}: {CONSOLE}{file} has no {call}" for route, (file, call, _) in VERBS.items() if call not in read(CONSOLE + file)],
            "calls that are missing:")
    none_of([f"{route}: {test}" for route, (_, _, test) in VERBS.items() if test not in tests], "tests that are missing:")
