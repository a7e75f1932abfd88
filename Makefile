# Everything that is needed, go fetches. FUZZTIME and BENCH narrow down.
FUZZTIME ?= 60s
BENCH ?= .
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0

# SEEDS is how many seeds make sim plays.
SEEDS ?= 20000

# KILLS is how many processes make crash kills per store and mode.
KILLS ?= 100

.PHONY: deps test lint fuzz bench bench-smoke benchmarks examples cover crash model sim

# Installs the servers that the tests start, on Debian; compose.yaml is for
# other systems.
deps:
	@./scripts/servers.sh

test:
	go test -race -shuffle=on ./...

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

fuzz:
	@./scripts/fuzz.sh $(FUZZTIME)

# Beside others' libraries and hand-written code; SHORT=1 ends in three minutes.
bench:
	cd bench && go run . $(if $(SHORT),-short)

# That bench builds and runs, as far as it needs memory only.
bench-smoke:
	cd bench && go vet ./... && go test ./...

benchmarks:
	go test -run='^$$' -bench='$(BENCH)' -benchmem ./...

model:
	go test -count=1 -v -run='^TestModel$$' ./internal/model -model.owners=3

sim:
	go test -count=1 -timeout=60m -v -run='^TestSeeds$$' ./internal/sim -sim.seeds=$(SEEDS)

crash:
	go test -count=1 -timeout=60m -v -run='^TestCrash$$' ./internal/crash -crash.kills=$(KILLS)

examples:
	@./scripts/examples.sh

cover:
	@./scripts/cover.sh
