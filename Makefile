# Nothing here is needed to build Keep: go build ./cmd/keep does it. CI calls
# .ci/run, which calls the scripts that these targets call.

GO ?= go
SHELL = bash

.DEFAULT_GOAL := help
FAILOVER_FOR ?= 5m
WORLDS_FOR ?= 10h
TOOL ?=

.PHONY: help build check test bench peers verify crossbuild archives examples lint sim replays pages-postgres torture worlds losses gateway canary sabotage failover renewals versions

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./keep
	CGO_ENABLED=0 $(GO) build -o keep ./cmd/keep

check: ## gofmt, vet, verify, and the tests of test.sh
	@./.ci/check format vet verify
	@./test.sh

test: ## install what the tests need, and run them with the race detector
	@./test.sh

peers: ## measure Keep beside other systems (ten minutes)
	cd bench && $(GO) run .

bench: ## measure a whole host against what the disk allows (a few minutes)
	$(GO) run ./internal/bench

verify: ## fail if go mod tidy or go generate would change anything
	@./.ci/check verify

crossbuild: ## build for Linux, macOS and Windows on amd64 and arm64
	@./.ci/check crossbuild

archives: ## make the archives and packages of a release, without its signatures and its image
	$(GO) run github.com/goreleaser/goreleaser/v2@v2.17.0 release --snapshot --clean --skip=sign,docker

examples: ## run the examples and the commands of README.md as a newcomer would
	$(GO) test -count=1 -v ./examples

sim: ## simulate a fixed set of seeds: 100,000 crashes, and every fault at every point
	$(GO) test -count=1 -v -run 'TestSeeds|TestOrderedSeeds|TestOutcomes|TestSame' ./internal/simtest -seeds 1000 -crashes 100000
	$(GO) test -count=1 -v -run 'TestWorlds$$' ./gateway -seeds 1000
	$(GO) test -count=1 -run 'TestKeyWorlds$$' ./idempotency -seeds 5000

replays: ## replay 10,000 runs of random scripts on their own versions
	$(GO) test -count=1 -v -timeout 0 -run TestRandomRuns ./rehearsal/replay -runs 10000

versions: ## test the Postgres store on the oldest and the newest PostgreSQL, fetched from npm
	@./.ci/check versions

pages-postgres: ## run every test of the pages, those in the browser too, on a real Postgres
	$(GO) test -count=1 ./web -postgres

torture: ## kill keep proxy 1,000 times on each store, move every state, simulate fresh seeds for ten minutes
	KEEP_TORTURE_CYCLES=1000 $(GO) test -count=1 -v -timeout 0 -run TestProxyKilled ./cmd/keep
	KEEP_TORTURE_CYCLES=5000 $(GO) test -count=1 -timeout 0 -run TestClientsAndBackends ./idempotency/proxy
	$(GO) test -count=1 -timeout 0 ./store/transfer -all
	$(GO) test -count=1 -timeout 0 -run TestStorePooled ./store/postgres -all
	$(GO) test -count=1 -timeout 0 -run TestScriptsOnPostgres ./cmd/keep -all
	$(MAKE) worlds WORLDS_FOR=10m
	$(GO) test -count=1 -timeout 0 -run TestLookupsAgainstTheTruth ./connector/httpapi -truth 50000000
	$(GO) test -count=1 -timeout 0 -run 'TestFileDrill|TestNamedFiles' ./cmd/keep -drill
	$(GO) test -count=1 -timeout 0 -run 'TestCanary$$' ./cmd/keep -canaries 50
	$(GO) test -count=1 -timeout 0 -run 'TestCrash$$|TestPostgresCrash|TestBudgetOverKills' ./cmd/keep -crash-kills 200 -budget-kills 10
	$(GO) test -count=1 -timeout 0 -run TestHappenedIsKept ./law/key -rapid.checks=1000000
	$(GO) test -count=1 -timeout 0 -run 'TestKeyWorlds$$' ./idempotency -seeds 50000 -first-seed $$(date +%s)00000

worlds: ## simulate fresh seeds for WORLDS_FOR (10h), and count in worlds.jsonl; continues where the last part ended
	$(GO) run ./internal/torture -for $(WORLDS_FOR) -tally worlds.jsonl

gateway: ## lose the answers of keep gateway, and of servers behind it, at every byte and in 15,000 calls, simulate 5,000 fresh worlds, and measure what it costs
	$(GO) test -count=1 -v -run 'TestAnswerLost|TestServerByHTTP' ./gateway -every-byte
	$(GO) test -count=1 -v -timeout 0 -run "TestLosses|TestFrontLosses" ./gateway -losses 2500
	$(GO) test -count=1 -v -timeout 0 -run 'TestWorlds$$' ./gateway -seeds 5000 -first-seed $$(date +%s)000
	$(GO) test -count=1 -v -run TestMeasure ./gateway -measure

losses: ## live 1,000 lives of each tool of a pack (or of TOOL), with losses, cuts and kills, and write docs/SERVICES.md (five minutes of a processor)
	$(GO) test -count=1 -v -timeout 0 -parallel 4 -run 'TestLosses/$(TOOL)' ./cmd/keep/internal/config -losses 1000 -lives 25 -record
	$(GO) test -count=1 -run TestServicesDocument ./cmd/keep/internal/config -update

canary: ## run every test, and look for the secrets of tests in all that they and their programs say
	set -o pipefail; $(GO) test -json -count=1 -timeout 60m ./... | $(GO) run ./internal/canary

failover: ## kill, freeze and cut off real hosts on a real Postgres, for five minutes
	$(GO) test -count=1 -v -timeout 0 -run 'TestFailover|TestTakeOver|TestPartition|TestRollingUpgrade' ./cmd/keep -failover $(FAILOVER_FOR) -failover-strict

renewals: ## kill three hosts that renew one account on Postgres, until it was renewed 1,000 times (half an hour)
	$(GO) test -count=1 -v -timeout 0 -run TestRenewKilled ./cmd/keep -renewals 1000

sabotage: ## break each guarantee in turn, and check that a test notices
	$(GO) run ./internal/sabotage

lint: ## run golangci-lint, if it is installed
	golangci-lint run
