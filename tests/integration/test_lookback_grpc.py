"""The look-back's checker over gRPC (relay/lookback/transport_grpc.c), on a server of grpcio."""

import base64
import contextlib
import hashlib
import hmac
import socket
import subprocess
import threading
import time
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf import descriptor_pb2

from support.certificates import Identity
from support.check_asker import PREPARED_AT, Asker
from support.grpc_service import ROOT, GrpcService, messages
from support.process import free_port

KEY = b"k" * 24
AILING = {"UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
UNKNOWN, PENDING, COMMIT, ROLLBACK = range(4)  # as the .proto numbers them


@pytest.fixture(scope="module")
def pb(tmp_path_factory):
    return messages(tmp_path_factory.mktemp("proto"))


@pytest.fixture
def serve(pb):
    """serve(answer) starts a service; it notes the calls."""
    with contextlib.ExitStack() as services:
        def make(answer, **options):
            calls = []

            def noted(request, context):
                calls.append(SimpleNamespace(
                    request=request, time_left=context.time_remaining(),
                    metadata=dict(context.invocation_metadata())))
                return answer(request, context)

            service = GrpcService(noted, pb.CheckRequest.FromString, **options)
            service.calls = calls
            return services.enter_context(service)
        yield make


@pytest.fixture
def make_asker(tmp_path):
    with contextlib.ExitStack() as askers:
        yield lambda url, **settings: askers.enter_context(Asker(
            tmp_path, **{"transport": "grpc", "url": url, "networks": "127.0.0.0/8", **settings}))


@pytest.fixture
def response(pb):
    """response(("7", COMMIT), …)"""
    return lambda *pairs: pb.CheckResponse(answers=[
        pb.CheckAnswer(biz_id=biz_id, decision=decision) for biz_id, decision in pairs])


def assert_undecided(answer, failure, sent=True, reached=None):
    assert set(answer["words"]) == {"unknown"}, answer
    assert answer["failure"] == failure, answer
    assert answer["sent"] == sent and len(answer["error"]) > 10, answer
    assert reached is None or answer["reached"] == reached, answer


# --- what is asked, and the right answer -----------------------------------------------------

@pytest.mark.parametrize("word,number", [
    ("unknown", UNKNOWN), ("pending", PENDING), ("commit", COMMIT), ("rollback", ROLLBACK)])
def test_one_id_is_asked_and_answered(serve, make_asker, pb, response, word, number):
    service = serve(lambda request, _: response((request.ids[0].biz_id, number)))
    answer = make_asker(service.url, timeout="20s").ask("order", "ä\"7", attempt=3)
    assert answer["words"] == [word] and answer["failure"] is None and answer["error"] == ""
    assert (answer["sent"], answer["reached"], answer["status"]) == (True, True, 0)
    call, = service.calls
    assert call.request == pb.CheckRequest(biz_type="order", ids=[
        pb.CheckId(biz_id="ä\"7", attempt=3, prepared_at=PREPARED_AT)])
    assert 1 < call.time_left <= 20
    assert call.metadata["user-agent"].startswith("outbox-relay/")
    assert "webhook-id" not in call.metadata


def test_several_ids_are_asked_in_one_request(serve, make_asker, response):
    def answer(request, _):
        return response(*[(one.biz_id, int(one.biz_id) % 4) for one in reversed(request.ids)])
    service = serve(answer)
    asked = [str(number) for number in range(1000)]
    answer = make_asker(service.url).ask("order", *asked)
    assert answer["words"] == ["unknown", "pending", "commit", "rollback"] * 250
    assert len(service.calls) == 1


def test_ids_that_are_left_out_are_unknown_and_the_others_are_not(serve, make_asker, response):
    service = serve(lambda *_: response(("2", COMMIT)))
    answer = make_asker(service.url).ask("order", "1", "2", "3")
    assert answer["words"] == ["unknown", "commit", "unknown"]
    assert answer["failure"] is None and "of 1 " in answer["error"]


def test_requests_are_signed(serve, make_asker, response):
    service = serve(lambda request, _: response(("7", COMMIT)))
    asker = make_asker(service.url, secret="whsec_" + base64.b64encode(KEY).decode())
    assert asker.ask("order", "7")["words"] == asker.ask("order", "7", attempt=2)["words"]
    for call in service.calls:
        head = f"{call.metadata['webhook-id']}.{call.metadata['webhook-timestamp']}.".encode()
        made = hmac.new(KEY, head + call.request.SerializeToString(), hashlib.sha256).digest()
        assert call.metadata["webhook-signature"] == "v1," + base64.b64encode(made).decode()
        assert abs(int(call.metadata["webhook-timestamp"]) - time.time()) < 60
    first, second = service.calls
    assert first.metadata["webhook-id"] == second.metadata["webhook-id"]


def test_a_path_of_the_url_stands_before_the_method(serve, make_asker, response):
    service = serve(lambda *_: response(("7", COMMIT)))
    assert make_asker(service.url + "/").ask("order", "7")["words"] == ["commit"]
    answer = make_asker(service.url).ask("order", "7", url=service.url + "/other/")
    assert_undecided(answer, "status", reached=True)
    assert answer["status"] == grpc.StatusCode.UNIMPLEMENTED.value[0]
    refused = make_asker(service.url).ask("order", "7", url=service.url + "/?a=b")
    assert "no query" in refused["error"] and len(service.calls) == 1


# --- wrong answers ---------------------------------------------------------------------------

@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name != "OK"],
                         ids=lambda code: code.name)
def test_nothing_is_decided_by_a_status(serve, make_asker, code):
    service = serve(lambda _, context: context.abort(code, "no\n\x01ä"))
    answer = make_asker(service.url).ask("order", "7")
    assert_undecided(answer, "status", reached=code.name not in AILING)
    assert answer["status"] == code.value[0] and code.name in answer["error"]


def test_a_status_behind_the_right_answer_counts(serve, make_asker, response):
    def answer(_, context):
        context.set_code(grpc.StatusCode.ABORTED)
        return response(("7", COMMIT))
    assert_undecided(make_asker(serve(answer).url).ask("order", "7"), "status", reached=True)


def test_an_exception_in_a_service_decides_nothing(serve, make_asker):
    service = serve(lambda *_: [][0])
    answer = make_asker(service.url).ask("order", "7")
    assert_undecided(answer, "status", reached=False)


def test_a_service_says_when_to_come_again(serve, make_asker):
    def answer(_, context):
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "7000"),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
    assert make_asker(serve(answer).url).ask("order", "7")["retry_after_ms"] == 7000


def field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def said(biz_id, decision):
    return field(1, field(1, biz_id) + bytes([2 << 3, decision]))


@pytest.mark.parametrize("body", [
    b"", said(b"8", COMMIT), said(b"", COMMIT), said(b"7\0", COMMIT), said(b"7\0x", COMMIT),
    said(b"\xff", COMMIT), said(b"7", 4), said(b"7", 100), said(b"7", COMMIT)[:-1],
    said(b"7", COMMIT) + b"x", said(b"7", COMMIT) + said(b"7", ROLLBACK),
    said(b"7", COMMIT) + said(b"7", 9), said(b"7", COMMIT) + said(b"8", COMMIT),
    field(1, field(1, b"7") + field(2, b"commit")), field(2, said(b"7", COMMIT)[2:]),
    b'{"biz_id": "7", "decision": "commit"}', b"<html>commit</html>", b"\x0b" * 10_000,
    field(1, b"\x80" * 100)])
def test_nothing_is_decided_by_a_message(serve, make_asker, body):
    answer = make_asker(serve(lambda *_: body).url).ask("order", "7")
    assert_undecided(answer, "answer", reached=True)


def test_the_right_answer_by_hand_is_one(serve, make_asker):
    service = serve(lambda *_: said(b"7", COMMIT) + field(15, b"what a later version says"))
    assert make_asker(service.url).ask("order", "7")["words"] == ["commit"]


def test_protoc_writes_go_and_java_without_more_options(tmp_path):
    subprocess.run(["protoc", f"--proto_path={ROOT}/docs/reference", f"--java_out={tmp_path}",
                    f"--descriptor_set_out={tmp_path}/set", "lookback.proto"], check=True)
    assert (tmp_path / "lookback" / "v1" / "CheckRequest.java").exists()
    assert (tmp_path / "lookback" / "v1" / "LookbackProto.java").exists()
    files = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes())
    # protoc-gen-go: an import path with a slash, and the name of the package
    assert files.file[0].options.go_package == "outbox-relay/lookback/v1;lookbackv1"


def test_a_message_that_is_compressed_was_never_asked_for(serve, make_asker, response):
    ids = [str(number) for number in range(500)]
    service = serve(lambda *_: response(*[(biz_id, COMMIT) for biz_id in ids]),
                    compression=grpc.Compression.Gzip)
    answer = make_asker(service.url).ask("order", *ids)
    assert_undecided(answer, "answer", reached=True)
    assert "its message is compressed (gzip)" in answer["error"]


def test_a_message_that_is_too_large_decides_nothing(serve, make_asker, response):
    service = serve(lambda *_: response(*[("7", COMMIT)] * 20_000))
    assert_undecided(make_asker(service.url).ask("order", "7"), "too_large", reached=True)


def test_an_answer_that_does_not_come_is_a_timeout(serve, make_asker, response):
    go_on = threading.Event()

    def answer(*_):
        go_on.wait(60)
        return response(("7", COMMIT))
    service = serve(answer)
    answer = make_asker(service.url, timeout="500ms").ask("order", "7")
    go_on.set()
    assert set(answer["words"]) == {"unknown"} and answer["sent"] and not answer["reached"]
    assert answer["failure"] in ("timeout", "status")  # whoever notices first
    assert service.calls[0].time_left <= 0.5


# --- connections -----------------------------------------------------------------------------

def test_nobody_there_is_no_attempt(make_asker):
    answer = make_asker(f"http://127.0.0.1:{free_port()}").ask("order", "7")
    assert_undecided(answer, "connect", sent=False, reached=False)


def test_an_address_that_is_not_allowed_is_not_connected_to(serve, make_asker, response):
    service = serve(lambda *_: response(("7", COMMIT)))
    asker = make_asker(service.url, networks="")
    asker.expected = "event=address_refused"
    assert_undecided(asker.ask("order", "7"), "address_refused", sent=False)
    assert service.calls == []


def test_certificates_convince_on_both_sides(serve, make_asker, response, tmp_path):
    own, client = Identity(tmp_path, "own"), Identity(tmp_path, "client")
    credentials = grpc.ssl_server_credentials(
        [(own.read("key"), own.read("certificate"))], client.read("certificate"), True)
    service = serve(lambda *_: response(("7", COMMIT)), credentials=credentials)
    shown = {"tls_certificate": client.certificate, "tls_key": client.key}
    asker = make_asker(service.url, tls_ca=own.certificate, **shown)
    numbers = [asker.send("order", "7") for _ in range(50)]
    assert all(asker.answer(number)["words"] == ["commit"] for number in numbers)
    assert_undecided(make_asker(service.url, **shown).ask("order", "7"), "tls", sent=False)
    without = make_asker(service.url, tls_ca=own.certificate).ask("order", "7")
    assert without["words"] == ["unknown"] and not without["reached"]
    assert len(service.calls) == 50


def test_hundreds_of_calls_are_answered(serve, make_asker, response):
    service = serve(lambda request, _: response((request.ids[0].biz_id, COMMIT)))
    asker = make_asker(service.url, host_in_flight=200, timeout="60s")
    for _ in range(3):
        numbers = [asker.send("order", str(number)) for number in range(200)]
        assert all(asker.answer(number)["words"] == ["commit"] for number in numbers)
    assert asker.close()["longest_us"] < 5_000_000


# --- GOAWAY ----------------------------------------------------------------------------------

def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def answer_frames(stream, message):
    """Head, message and trailers."""
    return (frame(1, 4, stream, b"\x88" + literal(b"content-type", b"application/grpc")),
            frame(0, 0, stream, bytes([0]) + len(message).to_bytes(4, "big") + message),
            frame(1, 5, stream, literal(b"grpc-status", b"0")))


class ByHand:
    """A server of HTTP/2 without a library, which may break its rules. serve(connection, number) answers."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            for number in range(100):
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection, number), daemon=True).start()

    @staticmethod
    def requests(connection):
        """The stream of each request, as soon as it is whole."""
        file = connection.makefile("rb")
        file.read(24)
        connection.sendall(frame(4, 0, 0))
        while head := file.read(9):
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big")
            file.read(int.from_bytes(head[:3], "big"))
            if kind == 4 and not flags & 1:
                connection.sendall(frame(4, 1, 0))
            if kind == 0 and flags & 1:
                yield stream


def going_away(stream):
    return frame(7, 0, 0, stream.to_bytes(4, "big") + bytes(4))


class GoingAway(ByHand):
    """The first `refusals` connections refuse their stream by GOAWAY, as servers do that end a
    connection by its age; others answer."""

    def __init__(self, refusals, message, kept):
        self.refusals, self.message, self.kept = refusals, message, kept
        self.asked = []
        super().__init__()

    def serve(self, connection, number):
        for stream in self.requests(connection):
            self.asked.append(number)
            if number < self.refusals and stream > (1 if self.kept else 0):
                connection.sendall(going_away(stream - 2 if stream > 2 else 0))
                connection.shutdown(socket.SHUT_RDWR)
                return
            connection.sendall(b"".join(answer_frames(stream, self.message)))


@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
def test_a_stream_that_is_refused_by_goaway_is_sent_again(make_asker, kept):
    service = GoingAway(2, said(b"7", COMMIT), kept)
    asker = make_asker(service.url)
    if kept:
        assert asker.ask("order", "7")["words"] == ["commit"]
    answer = asker.ask("order", "7")
    assert answer["words"] == ["commit"], answer
    assert len(service.asked) > 1


def test_a_service_that_refuses_each_stream_costs_no_attempt(make_asker):
    service = GoingAway(100, said(b"7", COMMIT), False)
    assert_undecided(make_asker(service.url).ask("order", "7"), "closed", sent=False, reached=False)
    assert len(service.asked) == 4


class CuttingOff(ByHand):
    """The first `cuts` connections end within their first answer, or with it."""

    def __init__(self, cuts, answer):
        self.cuts, self.answer = cuts, answer
        self.asked = 0
        super().__init__()

    def serve(self, connection, number):
        for stream in self.requests(connection):
            self.asked += 1
            frames = answer_frames(stream, said(b"7", COMMIT))
            if number >= self.cuts:
                connection.sendall(b"".join(frames))
                continue
            connection.sendall(self.answer(stream, frames))
            connection.shutdown(socket.SHUT_RDWR)
            return


CUTS = {
    "at once": lambda stream, frames: b"",
    "behind the head": lambda stream, frames: frames[0],
    "behind the message": lambda stream, frames: frames[0] + frames[1],
    # libcurl 7.88 forgets trailers that it read together with GOAWAY
    "with a GOAWAY behind the answer": lambda stream, frames: b"".join(frames) + going_away(stream),
}


@pytest.mark.parametrize("cut", CUTS)
def test_an_answer_that_is_cut_off_is_asked_for_once_more(make_asker, cut):
    service = CuttingOff(1, CUTS[cut])
    answer = make_asker(service.url).ask("order", "7")
    assert answer["words"] == ["commit"], answer
    assert service.asked == 2


def test_a_service_that_cuts_off_each_answer_is_asked_twice(make_asker):
    service = CuttingOff(100, CUTS["at once"])
    assert_undecided(make_asker(service.url).ask("order", "7"), "closed", sent=True, reached=False)
    assert service.asked == 2


def test_a_request_that_is_sent_again_keeps_to_its_timeout(make_asker):
    go_on = threading.Event()

    def late(stream, frames):
        go_on.wait(1.5)  # most of the timeout
        return b""

    def never(stream, frames):
        go_on.wait(60)
        return b""
    answers = iter((late, never))
    service = CuttingOff(2, lambda *given: next(answers)(*given))
    answer = make_asker(service.url, timeout="2s").ask("order", "7")
    go_on.set()
    assert_undecided(answer, "timeout", sent=True, reached=False)
    assert answer["total_us"] < 3_000_000, answer
