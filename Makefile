# Everything that is needed, go fetches. FUZZTIME and BENCH narrow down.
FUZZTIME ?= 60s
BENCH ?= .
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.7.0

.PHONY: test lint fuzz bench examples cover

test:
	go test -race -shuffle=on ./...

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

fuzz:
	@./scripts/fuzz.sh $(FUZZTIME)

bench:
	go test -run='^$$' -bench='$(BENCH)' -benchmem ./...

examples:
	@./scripts/examples.sh

cover:
	@./scripts/cover.sh
