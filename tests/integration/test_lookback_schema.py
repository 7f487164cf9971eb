"""The JSON schema of the look-back's messages and the program agree on what is one."""

import json
import pathlib

import jsonschema
import pytest

from support.api import CONFIG, SENDER, start_api

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/lookback-message.schema.json").read_text(encoding="utf-8"))
COMMIT = {"version": 1, "op": "commit", "biz_type": "orders", "biz_id": "42"}
BARE = {**COMMIT, "op": "prepare", "topic": "orders.new"}
PREPARE = {**BARE, "payload": {"n": 1.1}}


def without(message, *names):
    return {name: value for name, value in message.items() if name not in names}


GOOD = [
    PREPARE, COMMIT, {**COMMIT, "op": "rollback"}, {**COMMIT, "version": 1.0},
    {**BARE, "payload": None}, {**BARE, "payload": [1, "x"]}, {**BARE, "payload": False},
    {**BARE, "payload_base64": "AAE="}, {**BARE, "payload_base64": ""},
    {**BARE, "payload_base64": "AAEC"}, {**BARE, "payload_base64": "AA=="},
    {**PREPARE, "biz_id": "ü" * 250}, {**PREPARE, "biz_id": "a\n\t\"/"},
    {**PREPARE, "key": ""}, {**PREPARE, "key": None}, {**PREPARE, "key": "a\0b"},
    {**PREPARE, "headers": None}, {**PREPARE, "headers": {}}, {**PREPARE, "headers": []},
    {**PREPARE, "headers": {"a": "x", "b": 1, "c": True, "d": None, "e": {"base64": "AA=="}}},
    {**PREPARE, "headers": [["a", "x"], ["a", None], ["", {"base64": ""}]]},
    {**PREPARE, "check_service": "shop", "check_after": "90s", "expires_after": 3600},
    {**PREPARE, "check_service": None, "check_url": None, "check_after": None},
    {**PREPARE, "check_url": "https://shop.example.com/lookback/1"},
    {**PREPARE, "check_after": 0.5}, {**PREPARE, "check_after": "1500ms"},
    {**PREPARE, "check_after": "7"}, {**PREPARE, "check_after": "0" * 18 + "30s"}, {**PREPARE, "check_after": "0" * 30}, {**PREPARE, "expires_after": "3650d"},
    {**PREPARE, "expires_after": 315360000},
    {**PREPARE, "unique_key": "k"}, {**PREPARE, "unique_key": "ü" * 256, "within": 0.001},
    {**PREPARE, "unique_key": "a\n\t\"", "within": "0024h", "while_pending": "published"},
    {**PREPARE, "unique_key": "k", "within": 315360000, "while_pending": "done"},
    {**PREPARE, "unique_key": "k", "within": "3650d", "while_pending": None},
    {**PREPARE, "unique_key": None, "within": None, "while_pending": None},
    # of a decision the rest is not looked at
    {**COMMIT, "topic": 7, "headers": 7, "payload": 1, "payload_base64": 2, "check_after": "x", "within": 0},
]
BAD = [
    7, "x", [], {}, {"biz_type": "orders"},
    *[without(PREPARE, name) for name in ("version", "biz_type", "biz_id", "topic", "payload")],
    without(COMMIT, "biz_id"),
    *[{**PREPARE, name: None} for name in ("version", "biz_type", "biz_id", "topic", "op")],
    *[{**PREPARE, name: 7} for name in ("biz_type", "biz_id", "topic", "key", "check_service",
                                        "check_url", "headers", "op")],
    {**COMMIT, "version": 2}, {**COMMIT, "version": "1"}, {**COMMIT, "version": True},
    {**COMMIT, "extra": 1}, {**PREPARE, "extra": 1}, {**COMMIT, "op": "Commit"},
    *[{**COMMIT, "biz_type": name} for name in ("a:b", "", ".", "..", "ü", "t" * 101)],
    *[{**COMMIT, "biz_id": id} for id in ("", "a\0b", "i" * 501, "ü" * 501)],
    *[{**PREPARE, "topic": name} for name in ("", "a b", "..", "t" * 250)],
    *[{**PREPARE, "check_service": name} for name in ("", "a b", "s" * 101)],
    *[{**PREPARE, "check_url": url} for url in ("", ["x"], "https://shop.example.com/\0",
                                                "https://shop.example.com/" + "x" * 2000)],
    *[{**PREPARE, "check_after": time} for time in ("soon", "", "-1s", "1.5s", "1w", -1, 1e300, True,
                                                    315360001, [], "1 s")],
    *[{**PREPARE, "unique_key": key} for key in ("", "k" * 513, "a\0b", 7, ["k"])],
    *[{**PREPARE, "unique_key": "k", "within": time} for time in (
        0, -1, "0", "0s", "000ms", "-1s", "1 day", "", 315360001, True, 0.0001)],
    *[{**PREPARE, "unique_key": "k", "while_pending": word} for word in ("", "Done", "pending", True)],
    {**PREPARE, "within": "1h"}, {**PREPARE, "while_pending": "done"},
    {**PREPARE, "unique_key": None, "within": "1h"},
    {**PREPARE, "key": "k" * 8193}, {**PREPARE, "key": ["k"]},
    {**PREPARE, "payload_base64": "AAE="},
    *[{**BARE, "payload_base64": text} for text in ("AAE", "?", "A===", 7, None, "AA==AA==")],
    *[{**PREPARE, "headers": headers} for headers in (
        "x", {"outbox-id": "x"}, [["outbox-id", "x"]], {"a": {"base64": "?"}}, {"a": {}}, {"a": []},
        {"a": {"base64": "", "b": 1}}, {"a": {"b": "c"}}, [["a"]], [["a", "b", "c"]], [[7, "x"]],
        ["a"], {"a": "\0"}, {"a\0": "x"}, [["a", ["x"]]])],
]


# The schema counts characters, and the tables count bytes.
TOO_MANY_BYTES = [
    {**COMMIT, "biz_id": "ü" * 251}, {**PREPARE, "key": "ü" * 4097}, {**PREPARE, "unique_key": "ü" * 257},
    {**PREPARE, "check_url": "https://shop.example.com/" + "ü" * 1000}, {**PREPARE, "headers": {"a": "x" * 32768}}]


@pytest.fixture(scope="module")
def validator():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    return jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_and_the_program_take_and_refuse_the_same(
        validator, make_relay, topic, tmp_path):
    _, api = start_api(make_relay, tmp_path, "token-of-a-sender", CONFIG.format(topic=topic) + SENDER)

    def answer_to(message):
        op = message.get("op") if isinstance(message, dict) else None
        return api.post(op if op in ("commit", "rollback") else "prepare", message)

    for number, message in enumerate(GOOD):
        if message["biz_id"] == PREPARE["biz_id"]:  # one id is for one message
            message = {**message, "biz_id": f"good-{number}"}
        assert validator.is_valid(message), message
        answer = answer_to(message)
        assert answer.status == 202, (message, answer.text)
    for message in BAD:
        assert not validator.is_valid(message), message
        answer = answer_to(message)
        assert answer.status == 400 and answer.code in (
            "bad_json", "bad_value", "bad_version", "missing_field", "unknown_field",
            "wrong_type"), (message, answer.text)
    for message in TOO_MANY_BYTES:
        assert validator.is_valid(message), message
        answer = answer_to(message)
        assert (answer.status, answer.code) == (409, "too_many_bytes"), (message, answer.text)


def test_the_schema_takes_what_the_fuzzer_begins_with(validator):
    seeds = list((ROOT / "tests" / "fuzz" / "corpus" / "lookback").glob("*.json"))
    assert len(seeds) >= 3
    for seed in seeds:
        text = seed.read_text(encoding="utf-8")
        validator.validate(json.loads(text[text.index("{"):text.rindex("}") + 1]))


def test_only_over_http_the_op_may_be_left_to_the_path(validator):
    assert not validator.is_valid(without(COMMIT, "op"))
