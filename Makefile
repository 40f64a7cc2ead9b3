# Run `make` for the list of targets.
GO      ?= go
BIN     := bin/logboom
PACKAGES = nginx rsyslog php-cli php-monolog apache2-utils wrk strace procps busybox-static pigz util-linux iproute2 python3-minimal gcc libc6-dev

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

build: ## bin/logboom, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/logboom

run: build ## the main job on the shipped conf.toml: no root, no set-up
	$(BIN) run -c conf.toml

test: deps ## all tests, with the race detector
	$(GO) vet ./...
	$(GO) test -race -p 1 -timeout 14m ./...  # one package at a time: daemons and their peers want both cores

soak: deps build ## what takes too long for test: boots systemd, long runs
	LOGBOOM_SOAK=1 $(GO) test -race -timeout 90m -v -run 'Soak' ./...

race: test

deps: ## install the Debian packages that tests use, or say which are missing
	@etc/deps $(PACKAGES)

lint: ## format, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@latest ./...

fuzz: ## every fuzz target, FUZZTIME each (default 30s)
	@etc/fuzz $${FUZZTIME:-30s}

bench: build ## logboom, its peers and the floor side by side; BENCH='-n 1 udp' is quick
	$(GO) run ./bench $(BENCH)

bench-go: ## Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

cover: ## coverage by package
	$(GO) test -cover ./... | grep -v 'no test files'

check: lint ## lint, tidy, test
	$(GO) mod tidy -diff
	$(MAKE) test

install: build ## binary, unit and example config below DESTDIR
	install -D -m 0755 $(BIN) $(DESTDIR)/usr/bin/logboom
	install -D -m 0644 etc/logboom.service $(DESTDIR)/usr/lib/systemd/system/logboom.service
	install -D -m 0644 etc/logboom.socket $(DESTDIR)/usr/lib/systemd/system/logboom.socket
	install -D -m 0644 etc/logboom.sysusers $(DESTDIR)/usr/lib/sysusers.d/logboom.conf
	install -D -m 0644 etc/logboom.sysctl $(DESTDIR)/usr/lib/sysctl.d/60-logboom.conf
	install -D -m 0644 etc/conf.toml $(DESTDIR)/etc/logboom/conf.toml

.PHONY: help build run test soak race deps lint fuzz bench bench-go cover check install
