"""Certificates for tests, made with the program openssl: identities that sign themselves or others."""

import os
import subprocess


def _openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Identity:
    """A key and a certificate that signs itself, in PEM files, for 127.0.0.1."""

    def __init__(self, folder, name):
        os.makedirs(folder, exist_ok=True)
        self.folder = str(folder)
        self.key = os.path.join(self.folder, f"{name}.key")
        self.certificate = os.path.join(self.folder, f"{name}.pem")
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-keyout", self.key, "-out", self.certificate, "-days", "1", "-subj", f"/CN={name}",
                 "-addext", "subjectAltName=IP:127.0.0.1")

    def read(self, what):
        with open(getattr(self, what), "rb") as file:
            return file.read()


class Authority(Identity):
    """Signs the certificates of others."""

    def __init__(self, folder, name="authority"):
        super().__init__(folder, name)

    def issue(self, name, hosts="IP:127.0.0.1,DNS:localhost", days=1):
        """(certificate, key): PEM files, valid for these hosts; with days=-1 the certificate has expired."""
        key, request, certificate, extensions = (
            os.path.join(self.folder, f"{name}.{end}") for end in ("key", "csr", "pem", "ext"))
        with open(extensions, "w", encoding="utf-8") as file:
            file.write(f"subjectAltName={hosts}\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                 "-out", request, "-subj", f"/CN={name}")
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
                 "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", certificate)
        return certificate, key
