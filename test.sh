#!/usr/bin/env bash
# Installs what the tests need and runs them. Arguments go to go test:
#
#	./test.sh                      everything, with the race detector
#	./test.sh -run Crash ./engine  a part of it
#
# Needed are Go 1.26, which is not installed here, and for all tests to run a C
# compiler (the race detector wants one), PostgreSQL (the sql connector is tested
# on a real one), Dovecot and Postfix (so is the mail connector; Postfix starts as root
# only), Chromium (the pages are looked at with it) and, by npm, TypeScript
# (the types of scripts are compiled), oidc-provider (accounts are connected to it) and the conformance
# suite of MCP (agents speak with keep mcp). On Debian these are
# installed with apt-get if they are missing and the user is root; otherwise the
# tests that need them are left out, and a line says so. With CI=true leaving out is
# a failure.
set -euo pipefail
cd "$(dirname "$0")"
if [ -z "${KEEP_TEST_SCRATCH+set}" ]; then exec .ci/scratch ./test.sh "$@"; fi

say() { printf 'test.sh: %s\n' "$*" >&2; }

# lacking WHAT WHY ends the script in CI, and continues elsewhere.
lacking() {
	say "$1; $2"
	if [ "${CI:-}" = true ]; then exit 1; fi
}

# have_postgres reports whether the server's programs are anywhere that the
# tests look for them.
have_postgres() {
	command -v initdb >/dev/null && return
	compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

have_pgbouncer() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }

have_mail() {
	{ command -v dovecot || [ -x /usr/sbin/dovecot ]; } >/dev/null && { command -v postfix || [ -x /usr/sbin/postfix ]; } >/dev/null
}

have_chromium() {
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

# The version is fixed: what a compiler of types accepts changes.
typescript=typescript@5.9.3
tools="${XDG_CACHE_HOME:-$HOME/.cache}/keep-test/$typescript"
export PATH="$tools/node_modules/.bin:$PATH"

have_tsc() { [ -x "$tools/node_modules/.bin/tsc" ]; }

install_tsc() {
	command -v npm >/dev/null || return
	say "installing $typescript"
	mkdir -p "$tools" && npm install --no-audit --no-fund --loglevel=error --prefix "$tools" "$typescript" >&2
}

# A real S3 server, which is no module of ours: it is built once, into the cache.
versitygw=versitygw@v1.8.0
s3="${XDG_CACHE_HOME:-$HOME/.cache}/keep-test/$versitygw"

have_s3() { command -v versitygw >/dev/null || [ -x "$s3/versitygw" ]; }

install_s3() {
	say "building $versitygw"
	GOBIN="$s3" GOFLAGS= go install "github.com/versity/versitygw/cmd/$versitygw" >&2
}

# A real OAuth server, in Node.js.
oidc=oidc-provider@9.13.3
oauth="${XDG_CACHE_HOME:-$HOME/.cache}/keep-test/$oidc"

have_oauth() { [ -d "$oauth/node_modules/oidc-provider" ]; }

install_oauth() {
	command -v npm >/dev/null || return
	say "installing $oidc"
	mkdir -p "$oauth" && npm install --no-audit --no-fund --loglevel=error --prefix "$oauth" "$oidc" >&2
}

# The protocol's own tests of servers that agents speak with, in Node.js.
agents=@modelcontextprotocol/conformance@0.1.13
suite="${XDG_CACHE_HOME:-$HOME/.cache}/keep-test/$agents"

have_agents() { [ -d "$suite/node_modules/@modelcontextprotocol/conformance" ]; }

install_agents() {
	command -v npm >/dev/null || return
	say "installing $agents"
	mkdir -p "$suite" && npm install --no-audit --no-fund --loglevel=error --prefix "$suite" "$agents" >&2
}

# The same for each version of the protocol, which needs a newer Node.js.
all_agents=@modelcontextprotocol/conformance@0.2.0-alpha.12
suites="${XDG_CACHE_HOME:-$HOME/.cache}/keep-test/$all_agents"

have_all_agents() { [ -x "$suites/node_modules/.bin/node" ]; }

install_all_agents() {
	command -v npm >/dev/null || return
	say "installing $all_agents"
	mkdir -p "$suites" && npm install --no-audit --no-fund --loglevel=error --prefix "$suites" "$all_agents" node@22.23.3 >&2
}

# Real servers that agents speak with, in Node.js, on which pairings are tried.
servers="${XDG_CACHE_HOME:-$HOME/.cache}/keep-test/mcp-servers"
scope=@modelcontextprotocol/server

have_servers() { [ -d "$servers/node_modules/$scope-filesystem" ] && [ -d "$servers/node_modules/$scope-memory" ] && [ -d "$servers/node_modules/$scope-postgres" ] && [ -d "$servers/node_modules/$scope-slack" ]; }

install_servers() {
	command -v npm >/dev/null || return
	say "installing MCP servers"
	mkdir -p "$servers" && npm install --no-audit --no-fund --loglevel=error --prefix "$servers" \
		$scope-filesystem@2026.8.31 $scope-memory@2026.8.31 $scope-postgres@0.6.2 $scope-slack@2025.4.25 >&2
}

have_keychain() { [ "$(uname)" != Linux ] || { command -v gnome-keyring-daemon && command -v dbus-run-session; } >/dev/null; }

have_ip() { [ "$(uname)" != Linux ] || command -v ip >/dev/null; }
have_systemd() { [ "$(uname)" != Linux ] || command -v systemd-analyze >/dev/null; }
have_prometheus() { command -v prometheus >/dev/null; }

have_compiler() { command -v "${CC:-gcc}" >/dev/null || command -v clang >/dev/null; }

# install PACKAGE… returns false if it cannot.
install() {
	if ! command -v apt-get >/dev/null; then
		say "cannot install $*: there is no apt-get here; install it with the package manager of this machine"
		return 1
	fi
	if [ "$(id -u)" != 0 ]; then
		say "cannot install $*: not root; run: sudo apt-get install --no-install-recommends $*"
		return 1
	fi
	say "installing $*"
	export DEBIAN_FRONTEND=noninteractive
	# Debian would start a server of its own on port 5432; the tests start theirs.
	mkdir -p /etc/postgresql-common
	if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
		echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
	fi
	# It would ask what kind of mail server this is to be; the tests start one of their own.
	echo 'postfix postfix/main_mailer_type select No configuration' | debconf-set-selections 2>/dev/null || true
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"; } >/tmp/keep-apt.log 2>&1 || {
		tail -n 20 /tmp/keep-apt.log >&2
		say "apt-get could not install $*"
		return 1
	}
}

if ! command -v go >/dev/null; then
	say 'Go is missing: install Go 1.26 or newer from https://go.dev/dl/'
	exit 1
fi

race=-race
missing=()
have_compiler || missing+=(gcc libc6-dev)
have_postgres || missing+=(postgresql)
have_pgbouncer || missing+=(pgbouncer)
have_mail || missing+=(dovecot-imapd postfix)
have_ip || missing+=(iproute2)
have_systemd || missing+=(systemd)
have_prometheus || missing+=(prometheus)
have_keychain || missing+=(gnome-keyring dbus-daemon)
have_chromium || missing+=(chromium fonts-dejavu-core)
if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}" </dev/null || true; fi
have_tsc || install_tsc </dev/null || true
if ! have_tsc; then
	lacking 'there is no TypeScript compiler, or no npm to install it' 'the types of scripts are not compiled'
fi
have_s3 || install_s3 </dev/null || true
if ! have_s3; then
	lacking 'there is no versitygw, and it could not be built' 'the s3 connector is not tested'
fi
have_oauth || install_oauth </dev/null || true
if ! have_oauth; then
	lacking 'there is no oidc-provider, or no npm to install it' 'accounts are not connected to a real OAuth server'
fi
have_agents || install_agents </dev/null || true
if ! have_agents; then
	lacking 'there is no conformance suite of MCP, or no npm to install it' 'what agents speak with is not tested against it'
fi
have_all_agents || install_all_agents </dev/null || true
if ! have_all_agents; then
	lacking 'there is no conformance suite of MCP for each version, or no npm to install it' 'keep gateway is not tested against it'
fi
have_servers || install_servers </dev/null || true
if ! have_servers; then
	lacking 'there are no MCP servers of npm, or no npm to install them' 'pairings are not tried on real servers'
fi
if ! have_compiler; then
	race=
	lacking 'there is no C compiler' 'the tests run without the race detector'
fi
if ! have_postgres; then
	lacking 'there is no PostgreSQL' 'its tests are skipped'
fi
if ! have_pgbouncer; then
	lacking 'there is no PgBouncer' 'Postgres is not tested behind it'
fi
if ! have_mail; then
	lacking 'there is no Dovecot or no Postfix' 'the mail connector is not tested'
fi
if ! have_ip; then
	lacking 'there is no ip (iproute2)' 'hosts are not parted in network namespaces'
fi
if ! have_prometheus; then
	lacking 'there is no Prometheus' 'the dashboard and the alerts are not tried'
fi
if ! have_keychain; then
	lacking 'there is no gnome-keyring, or no dbus-run-session' 'the keychain of the system is not tested'
fi
if ! have_chromium; then
	lacking 'there is no Chromium' 'the pages are not looked at with a browser'
fi

say 'fetching Go modules'
go mod download

# Nothing is vetted here: .ci/check does that, once. go test would go through all that is imported, too, with other
# analyzers, and once more for the race detector and for each module.

# compatible tests the idempotency middleware under routers of others, which is a
# module of its own. A copy of its go.mod follows when ours asks for newer modules. Of these routers gin
# would bring a codec of MessagePack, a third of all that is compiled here, which no test uses.
compatible() (
	cd idempotency/compattest
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp go.mod go.sum "$copy"
	CGO_ENABLED=0 go test -vet=off -timeout 15m -tags nomsgpack -mod=mod -modfile="$copy/go.mod" ./...
)

# installed tests what Keep is installed with, by a module of its own, too.
installed() (
	cd deploy/check
	CGO_ENABLED=0 go test -vet=off -timeout 15m ./...
)

# measured builds what measures Keep beside other systems, by a module of its own, too.
measured() (
	cd bench
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp go.mod go.sum "$copy"
	CGO_ENABLED=0 go vet -mod=mod -modfile="$copy/go.mod" ./...
)

failed=0 # what fails does not keep the rest from running
if [ $# -eq 0 ]; then
	say 'go test ./... in idempotency/compattest'
	compatible || failed=1
	say 'go test ./... in deploy/check'
	installed || failed=1
	say 'go vet ./... in bench'
	measured || failed=1
	# What hostile input takes is measured without the race detector, and what has many
	# cases, or compares by one goroutine, goes through all of them without it, and through some with it.
	whole='TestHostile|TestGreedy|TestPacksOverCrashes|TestStoresMakeNoDifference|TestSameGroupSameTrace'
	whole+='|TestGroups$|TestKilled$|TestOutageCosts|TestOrderKeyBacklog|TestDamagedCache|TestLongSource|TestCorpus|TestInjections|TestWrongTypesInPacks'
	say "go test -run $whole"
	CGO_ENABLED=0 go test -vet=off -timeout 45m -run "$whole" ./repair ./internal/simtest ./api ./cmd/keep/internal/config \
		./connector/httpapi ./connector/mail ./engine ./idempotency/proxy ./script/sandbox || failed=1
	# What has no goroutine, lock or atomic needs no race detector, and for each package that has it a large binary is linked.
	# (What it calls is watched in its own tests.)
	alone='^github.com/keep-run/keep/(law/(account|approval|breaker|budget|canonical|commit|count|given|key|ledger|lifecycle|limit|pin|policy|rename|repair|repeat|schedule|search)'
	alone+='|connector/internal/(eml|jsonval)|internal/(policytest|sabotage|schema|utf8json)|script/sandbox/internal/(fuel|quickjs)|script/workflow|store/transfer|operator|view|cmd/keep/internal/guide/internal/generate|web/graph)$'
	all=$(go list ./...)
	say 'go test of packages that have no goroutines'
	# shellcheck disable=SC2046 # a word each
	CGO_ENABLED=0 go test -vet=off -timeout 45m $(grep -E "$alone" <<<"$all") || failed=1
	# The dear ones begin, or the last of them would have the machine to itself at the end.
	dear=$(sed 's|^|github.com/keep-run/keep/|' <<-'end'
		cmd/keep
		web
		store/postgres
		store/sqlite
		engine
		gateway
		connector/mail
		host
		examples
		internal/simtest
		connector/sqldb
		repair
		internal/chaos
		script/sandbox
		cmd/keep/internal/config
	end
	)
	# shellcheck disable=SC2046,SC2086 # a word each
	set -- $dear $(grep -vE "$alone" <<<"$all" | grep -vxF "$dear")
fi
# Test binaries need no debugging information, nor symbols (the race detector reads those that
# panics do); linking it would take minutes in all.
flags=(-timeout 45m -ldflags=-s ${race:+"$race"} -vet=off)
# The race detector needs cgo; what tests build does not, as releases do not. The whole is bound by the processors:
# what each package took of them is said at the end, since the time that passed tells of the packages beside it.
KEEP_TEST_TIMES=$(mktemp)
KEEP_TEST_BIN=$(mktemp -d)
trap 'rm -f "$KEEP_TEST_TIMES"; umount -l "$KEEP_TEST_BIN" 2>/dev/null || true; rm -rf "$KEEP_TEST_BIN"' EXIT
export KEEP_TEST_TIMES KEEP_TEST_BIN KEEP_TEST_ROOT="$PWD"
# Tests start the command thousands of times, and where the machine is a guest each page that a process touches first
# is dear. Its file is in large pages if it can be, which takes a third of the processor time from each start.
if [ "$(uname)" = Linux ] && [ "$(id -u)" = 0 ]; then
	mount -t tmpfs -o huge=always,mode=0700 keep-test "$KEEP_TEST_BIN" 2>/dev/null || true
fi
flags+=(-exec "'$PWD/.ci/timed'")
# Many tests wait for processes, leases and limits of time; a third of the processors was idle with a package for each.
flags+=(-p "$(($(getconf _NPROCESSORS_ONLN) + 1))")
# SQLite translated to Go is no code of ours and shares no memory with it: watching each of its
# reads and writes for races would make opening a database six times slower, and a third of all
# tests do that. What calls it is watched, and so are the driver and everything that locks. (A
# package with generic code must be watched: the linker might take its copy of that for all.)
if [ -n "$race" ]; then
	# A process that is watched waits a second before it exits, for races that others still report.
	# Tests start thousands of them, and each says at once what it sees. What the detector remembers of memory
	# may be in large pages where the system has them: half as many are touched first.
	export GORACE="atexit_sleep_ms=0 no_huge_pages_for_shadow=0 ${GORACE:-}"
	# Nothing of ours that runs here has unsafe pointers, so those of others are not checked either.
	# What the linker leaves out (-s) is not made: a seventh of the time of compiling.
	flags+=(
		'-gcflags=all=-d=checkptr=0 -dwarf=false'
		'-gcflags=modernc.org/sqlite/lib=-race=false -d=checkptr=0 -dwarf=false'
	)
fi
say "go test ${flags[*]} $([ $# -lt 9 ] && echo "$*" || echo "($# packages)")"
go test "${flags[@]}" "$@" || failed=1
say 'processor time of those that took most, user and system'
awk '{ split($1, u, /[ms]/); split($2, s, /[ms]/); printf "%7.1f %7.1f s  %s\n", u[1] * 60 + u[2], s[1] * 60 + s[2], $3 }' "$KEEP_TEST_TIMES" |
	sort -rn | head -n 16 >&2 || true
exit "$failed"
