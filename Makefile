# Each target is one command; what needs logic is Go, in internal/ci and in the tests.
.PHONY: help test test-busy exhaustive vulnerable check lint cover fuzz bench load soak conformance matrix outdated parity performance release site

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

test: ## prepare this machine, then everything that has to pass: 28 minutes on two processors
	go run ./internal/ci all

test-busy: ## the same beside two busy loops for each processor; nothing is retried
	go run ./internal/ci all -busy

exhaustive: ## all the tests that test leaves out; PKG=./pyodide/... or SINCE=main for some, SHARD=2/20 for a part
	go run ./internal/ci exhaustive $(if $(VULNDB),-vulnerabilities $(VULNDB)) $(if $(SINCE),-since $(SINCE)) $(if $(SHARD),-shard $(SHARD)) $(PKG)

vulnerable: ## known vulnerabilities, by govulncheck; VULNDB=file:///srv/vulndb for a copy of its database
	go run ./internal/ci vulnerable $(if $(VULNDB),-vulnerabilities $(VULNDB))

check: ## what takes minutes: formatting, linters and vet, go.mod, generated code, the tests that need no sandbox
	go run ./internal/ci check

lint: ## the linters of .golangci.yml only
	go run ./internal/ci lint

cover: ## test coverage, in cover.html
	go test -coverpkg=./... -coverprofile=cover.out ./... && go tool cover -html=cover.out -o cover.html

fuzz: ## five minutes of each fuzz target
	go run ./internal/ci fuzz -fuzztime 5m

bench: ## every benchmark
	go test -run '^$$' -bench . -benchmem -timeout 2h ./...

load: ## a hundred users of execbroker serve for a minute, on Docker and on Pyodide
	go run ./internal/ci/load

soak: ## the tests that take hours
	go test -tags soak -run '^TestSoak' -count 1 -timeout 24h -v ./...

conformance: ## run the conformance suite against every backend and renew docs/reports
	go run ./internal/ci conformance

matrix: ## renew docs/matrix.md from docs/reports
	go run ./internal/ci matrix

outdated: ## list direct dependencies, of Go and of npm, that have a later version, are deprecated or retracted
	go run ./internal/ci outdated

parity: ## run programs on every backend and move conversations between them; renew those reports
	go test -count 1 -timeout 4h -run '^Test(Parity|Carried)$$' ./backends/all -update

performance: ## measure against what is underneath, and renew docs/performance.md; PAGE=1 only marks the lines whose claim has changed
	go run ./internal/ci performance $(if $(PAGE),-page) $(PKG)

release: ## programs, packages, an image, a chart, checksums and provenance, in OUT or dist; DIRTY=1 accepts changes that are not committed
	go run ./internal/ci release $(if $(OUT),-out $(OUT)) $(if $(DIRTY),-dirty) $(if $(TARGETS),-targets $(TARGETS))

site: ## the documentation as a static site, in ./site; VERSION=v0.1 for another version beside main
	go run ./internal/ci/site $(if $(VERSION),-version $(VERSION)) $(if $(BASE),-base $(BASE))
