"""lookback.v1.Checker by grpcio and Google's protobuf: another implementation than the relay's."""

import importlib.util
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import grpc

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def messages(folder):
    """The module that protoc makes of docs/reference/lookback.proto."""
    subprocess.run(["protoc", f"--proto_path={ROOT}/docs/reference", f"--python_out={folder}",
                    "lookback.proto"], check=True)
    spec = importlib.util.spec_from_file_location("lookback_pb2", f"{folder}/lookback_pb2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GrpcService:
    """answer(request, context) is called for each request and returns a response, or its bytes;
    parse turns the bytes of a request into what it gets."""

    def __init__(self, answer, parse, credentials=None, host="127.0.0.1", port=0, **options):
        self.server = grpc.server(ThreadPoolExecutor(8), **options)
        handler = grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=parse,
            response_serializer=lambda response: response if isinstance(response, bytes)
            else response.SerializeToString())
        self.server.add_generic_rpc_handlers([
            grpc.method_handlers_generic_handler("lookback.v1.Checker", {"Check": handler})])
        self.port = self.server.add_secure_port(f"{host}:{port}", credentials) if credentials \
            else self.server.add_insecure_port(f"{host}:{port}")
        self.url = f"{'https' if credentials else 'http'}://{host}:{self.port}"

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(0).wait()
