"""Apache Kafka with TLS and passwords, as managed clouds have it, reached through a proxy for each listener:

    TLS       TLS with a certificate for localhost
    MUTUAL    the same, and clients need a certificate of the authority
    PLAIN     SASL PLAIN over TLS
    SCRAM     SASL SCRAM-SHA-256 and SCRAM-SHA-512 over TLS

The tests themselves use the listener without either (bootstrap). A certificate that is replaced is shown from the next
connection on, and cut() ends those that are open.
"""

import os
import ssl

from confluent_kafka.admin import ConfigResource

from .kafka import Kafka, _results
from .process import free_port, wait_for
from .proxy import Proxy

LOGIN = "relay"
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "PLAIN": "SASL_SSL", "SCRAM": "SASL_SSL"}
MECHANISMS = {"PLAIN": "PLAIN", "SCRAM": "SCRAM-SHA-256,SCRAM-SHA-512"}
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SecuredKafka(Kafka):
    def __init__(self, authority, password):
        self.authority = authority
        self.password = password
        self._ports = {name: free_port() for name in LISTENERS}
        self.proxies = {name: Proxy(port) for name, port in self._ports.items()}
        self._stores = 0
        self._shown = {}
        self._own = authority.issue("broker", "DNS:localhost")
        super().__init__()

    def servers(self, listener):
        return f"localhost:{self.proxies[listener].port}"

    def _settings(self, node):
        settings = super()._settings(node)

        def urls(ports):
            return "".join(f",{name}://localhost:{port}" for name, port in ports.items())

        settings["listeners"] += urls(self._ports)
        settings["advertised.listeners"] += urls({name: proxy.port for name, proxy in self.proxies.items()})
        settings["listener.security.protocol.map"] += "".join(f",{name}:{kind}" for name, kind in LISTENERS.items())
        store = self._store(*self._own)
        for name in LISTENERS:
            prefix = f"listener.name.{name.lower()}"
            settings.update({f"{prefix}.ssl.keystore.type": "PEM", f"{prefix}.ssl.keystore.location": store,
                             f"{prefix}.ssl.truststore.type": "PEM",
                             f"{prefix}.ssl.truststore.location": self.authority.certificate,
                             f"{prefix}.ssl.client.auth": "required" if name == "MUTUAL" else "none"})
        settings.update({"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true",
                         "num.network.threads": 1})  # several would take a new certificate one after the other
        for name, mechanisms in MECHANISMS.items():
            settings[f"listener.name.{name.lower()}.sasl.enabled.mechanisms"] = mechanisms
        for mechanism in MECHANISMS["SCRAM"].split(","):
            settings[f"listener.name.scram.{mechanism.lower()}.sasl.jaas.config"] = SCRAM_LOGIN
        settings["listener.name.plain.plain.sasl.jaas.config"] = f'{PLAIN_LOGIN} user_{LOGIN}="{self.password}";'
        return settings

    def start(self):
        super().start()
        self.change_password(self.password)
        return self

    def stop(self):
        super().stop()
        for proxy in self.proxies.values():
            proxy.close()

    def _store(self, certificate, key):
        """One file with the key and its certificate, under a new name: the broker reads a name once."""
        self._stores += 1
        path = os.path.join(self.folder, f"store-{self._stores}.pem")
        with open(path, "wb") as store:
            for part in (key, certificate):
                with open(part, "rb") as file:
                    store.write(file.read())
        return path

    def change_password(self, password, mechanisms=None):
        """Of the login, for SCRAM; connections that are open stay."""
        for mechanism in mechanisms or MECHANISMS["SCRAM"].split(","):  # the broker refuses two in one request
            self.tool("kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, "--alter", "--add-config",
                      f"{mechanism}=[iterations=4096,password={password}]", "--entity-type", "users",
                      "--entity-name", LOGIN)

    def present(self, listener, certificate, key):
        """Shows another certificate from the next connection on. The broker answers before it does so."""
        self._change(listener, "keystore", self._store(certificate, key))
        with open(certificate, encoding="ascii") as file:
            wanted = ssl.PEM_cert_to_DER_cert(file.read())
        address = ("localhost", self._ports[listener])
        wait_for(lambda: ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(address)) == wanted, 30,
                 "the certificate of the broker")

    def present_own(self, listener):
        self.present(listener, *self._own)

    def trust(self, listener, authorities):
        """Takes certificates of these alone from the next connection on."""
        self._stores += 1
        path = os.path.join(self.folder, f"trusted-{self._stores}.pem")
        with open(path, "wb") as file:
            for authority in authorities:
                file.write(authority.read("certificate"))
        self._change(listener, "truststore", path)

    def _change(self, listener, store, path):
        prefix = f"listener.name.{listener.lower()}.ssl.{store}"
        self._shown.update({f"{prefix}.type": "PEM", f"{prefix}.location": path})
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", set_config=self._shown)
        _results(self._admin().alter_configs([resource]))

    def cut(self):
        """Ends every connection of a client, as the restart of a broker does."""
        for proxy in self.proxies.values():
            proxy.reset()
