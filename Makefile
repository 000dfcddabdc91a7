# Rutter's house. `make` alone lists what there is to do.
.DEFAULT_GOAL := help
.PHONY: bench-go bench-compare hunt mutants bench-bulk vuln reproducible release quick module bench-security bench-inspect bench-kernel bench-wire build test race lint vet fmt-check packages bench bench-svp bench-store bench-feed rivals bench-vmstate bench-triton bench-simulate simulate fuzz demo test-long clean help

VERSION   := $(shell scripts/release/version.sh)
TOOL      := go tool -modfile=scripts/tools.mod
# The packages of each part, those that take longest first.
UNITS      = $(shell go list ./raftstore ./raftstore/history ./api/... ./... | grep -v '/integration')
# Most of what the other tests do is to wait for processes, so some run at the same time;
# integration/arch only reads.
WHOLE      = $(shell go list $(addprefix ./integration,/ /operate /guest /triton /tls /console) ./integration/... | grep -v -e '/integration/arch$$' $(addprefix -e ,$(ALONE:.%=%$$)))
# What starts machines, containers and libvirtd, which want the processors for themselves.
ALONE      = ./integration/cni ./integration/libvirt ./integration/qemu ./integration/install
SIDEWAYS   = -p $$(($$(nproc) + 1)) -parallel $$((2 * $$(nproc)))
BENCHED    = $(shell grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u)
FUZZTIME  ?= 10s
# How long any change's bytes are given to three servers, besides in fuzz and test-long.
FUZZCHANGE ?= 30s
# What is upgraded from: the last tag before this, else a revision of some time ago, else none.
PREVIOUS_RELEASE ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-parse -q --verify HEAD~50 2>/dev/null)
BENCHTIME ?= 200ms
# What make simulate was asked for: one seed, one file, or many histories.
SIMULATED  = $(if $(SEED),-seed $(SEED),$(if $(HISTORY),-history $(abspath $(HISTORY)),-histories $(or $(HISTORIES),500) -advance)) \
	$(if $(REPEAT),-repeat $(REPEAT)) $(if $(DURATION),-duration $(DURATION)) $(if $(FOR),-for $(FOR)) $(if $(LOG),-log $(abspath $(LOG))) $(if $(THEMES),-themes $(THEMES)) $(if $(WORKERS),-workers $(WORKERS))

module: ## rename the module in one go: make module PATH=host/org/rutter
	@scripts/module.sh '$(PATH)'

build: ## ./bin/rutter: one static binary
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/rutter ./cmd/rutter

test: packages build vet fmt-check ## everything that a change must pass, in a few minutes
	go test ./integration/arch
	go test -timeout 15m -vet=off $(SIDEWAYS) $(UNITS)
	@scripts/fuzz.sh $(FUZZCHANGE) FuzzChange
	RUTTER_PROGRAM=$(CURDIR)/bin/rutter go test -timeout 40m -count=1 -vet=off $(SIDEWAYS) $(WHOLE)
	RUTTER_PROGRAM=$(CURDIR)/bin/rutter go test -timeout 20m -count=1 -vet=off -p 1 $(ALONE)

quick: ## unit tests of the packages that differ from BASE (HEAD~), and of those that import them
	@scripts/quick.sh $(BASE)

race: ## every test under the race detector
	go test -race -timeout 20m ./...

lint: vet fmt-check ## staticcheck, and deadcode, which must print nothing
	$(TOOL) staticcheck ./...
	@dead=$$($(TOOL) deadcode -test ./...) || exit 1; test -z "$$dead" || { echo "unreachable functions, to be called or removed:"; echo "$$dead"; exit 1; }

vet: ## go vet
	go vet ./...
	go vet -modfile=scripts/release.mod -tags release ./scripts/release

fmt-check: ## gofumpt, which must have nothing to change
	@files=$$($(TOOL) gofumpt -l .) || exit 1; test -z "$$files" || { echo "gofumpt would change these, run '$(TOOL) gofumpt -w .':"; echo "$$files"; exit 1; }

packages: ## the Debian packages that some tests need, installed if missing and root
	@scripts/install-packages.sh
	@scripts/install-packages.sh browser-packages.txt

bench: ## every bench below, one after the other, and a table of all figures with goals, peers and the last release's values, also as docs/bench.svg. PART=store,feed for some of them, whose figures replace those of an earlier run
	@scripts/bench.sh '$(PART)'

bench-go: ## Go's benchmarks of single functions, BENCHTIME each
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem $(BENCHED)

bench-svp: ## our SVP server beside Redis and a bare echo, a minute; the last line is key=value
	@scripts/install-packages.sh bench-packages.txt
	go run ./integration/svpbench

bench-store: build rivals ## the store beside etcd and NATS JetStream, in one run: PART=append, replay, failover or restart for one part
	go run ./integration/bench/store -part $(or $(PART),all)

bench-compare: build ## the present program beside that of a commit, appending in turn, two minutes; an error if it is worse by more than a tenth. OLD=COMMIT
	@scripts/bench-compare.sh $(OLD)

bench-feed: build rivals ## the feed beside etcd's watch, some minutes: PART=fan, barrier, storm or catchup for one part
	go run ./integration/bench/feed -part $(or $(PART),all)

rivals: # what the benches measure against, from a module file of its own
	@mkdir -p bin/rivals
	go build -modfile=scripts/rivals.mod -o bin/rivals/etcd go.etcd.io/etcd/server/v3
	go build -modfile=scripts/rivals.mod -o bin/rivals/nats-server github.com/nats-io/nats-server/v2
	go build -modfile=scripts/rivals.mod -tags rivals -o bin/rivals/rival ./integration/bench/rival

bench-inspect: build ## how people read the log: scan, state of the past, tail, console; the first run makes a large log. PART=state, scan or live for one part
	@scripts/install-packages.sh browser-packages.txt
	go run ./integration/bench/inspect -part $(or $(PART),all)

bench-bulk: build ## many changes and many entries: replays of updates and of mixed kinds beside append_512, and log show as ndjson, about two minutes; the last line is key=value. PART=replay or show for one part; OLD=PROGRAM: an older program beside it
	go run ./integration/bench/bulk -part $(or $(PART),all) $(if $(OLD),-old $(OLD))

bench-vmstate: build ## the VMs of one compute node, ten thousand of them, and rings at three servers, half a minute; the last line is key=value
	go run ./integration/vmbench -program bin/rutter

bench-triton: build ## Triton's surfaces: items of the change feed, kills of every server, lists among a million NICs, placements among 10,000 servers, and a client of one address whose server is killed. PART=items, roam, idle, list, designate or blind for one part
	go run ./integration/bench/triton -part $(or $(PART),all)

bench-security: build ## what TLS, strangers and hostile clients cost, some minutes: PART=append, fan, strangers, hostile, greedy or matrix_rows for one part
	go run ./integration/bench/security -part $(or $(PART),all)

bench-kernel: build ## the kernel's side beside a bare netlink loop and ip -batch, and one own NIC at 1,000 VMs; ends with a line of key=value, also of what a failure left. PART=entries, stacks, noop, own, misses or paced for one part; RUTTER_BENCH_SECURED=1: noop and own with port security
	@scripts/install-packages.sh
	@scripts/bench-kernel.sh $(or $(PART),all)

bench-wire: build ## what port security costs on the wire, beside VXLAN, bridge and veth by ip(8) (_ratio) and a VXLAN device alone (_vs_device): 1 is as good as bare; 10,000 ports' rules; what a VM loses that moves. Some minutes. PART=tput, rtt, oneway (prints what a packet costs), rules or move for one part
	@scripts/install-packages.sh
	go run ./integration/bench/wire -part $(or $(PART),all)

fuzz: ## every fuzz target, FUZZTIME each
	@scripts/fuzz.sh $(FUZZTIME)

simulate: ## histories of a simulated cluster, HISTORIES (500) of seeds that were not used before; SEED=n or HISTORY=FILE runs one (REPEAT=20 so often, LOG=FILE says what happens in it); DURATION=20s, FOR=2h, THEMES=windows,stale, WORKERS=n (docs/simulate.md)
	@mkdir -p bin
	go test -c -o bin/simulate.test ./integration/simulate
	cd integration/simulate && ../../bin/simulate.test -test.run '^TestSimulate$$' -test.timeout 0 $(SIMULATED)

bench-simulate: ## how fast the simulator is and what it finds: HISTORIES (60) of fixed seeds; the last line is key=value
	@mkdir -p bin
	go test -c -o bin/simulate.test ./integration/simulate
	cd integration/simulate && ../../bin/simulate.test -test.run '^TestBenchSimulate$$' -test.timeout 0 -histories $(or $(HISTORIES),60) $(if $(WORKERS),-workers $(WORKERS))

hunt: ## bugs that are planted, looked for by the simulator: ONLY=NAME (or NAME,NAME, or patterns such as restore-*), HISTORIES (25) for each at most, FOR=1h, THEMES=blackouts,disks, AGAIN=1 forgets what was tried; writes what was found (docs/mutants.md)
	@mkdir -p bin
	go test -c -o bin/simulate.test ./integration/simulate
	cd integration/simulate && ../../bin/simulate.test -test.run '^TestHunt$$' -test.timeout 0 -hunt '$(or $(ONLY),*)' -most $(or $(HISTORIES),25) $(if $(FOR),-for $(FOR)) $(if $(THEMES),-themes $(THEMES)) $(if $(AGAIN),-again) $(if $(WORKERS),-workers $(WORKERS))

demo: build ## three servers, two compute nodes and real pings, told as it happens
	./bin/rutter demo

mutants: ## bugs that are planted one at a time, each with the tests that must notice it: ONLY=NAME (or NAME,NAME, or PREFIX*), AREA=store or node; goes on where a run was ended
	go run ./integration/simulate/mutants/plant -area '$(AREA)' -only '$(ONLY)'

test-long: packages build ## the long tests, an upgrade from PREVIOUS_RELEASE, three shuffled rounds under the race detector, fuzzing
	RUTTER_LONG=1 PREVIOUS_RELEASE=$(PREVIOUS_RELEASE) go test -count=1 -p 1 -timeout 60m ./...
	go test -race -shuffle=on -count=3 -timeout 2h ./...
	@scripts/fuzz.sh 1m

vuln: ## known vulnerabilities in what the program calls; error 3: some were found, 4: their data cannot be had from here
	@scripts/vuln.sh

release: ## what is published of this commit, in dist/: tarballs, Debian packages, image, bills of materials, checksums. ARCH=amd64 or ONLY=deb,tar for some of it; MAINTAINER='NAME <ADDRESS>'
	@VERSION="$(VERSION)" ARCH="$(ARCH)" ONLY="$(ONLY)" OUT="$(OUT)" MAINTAINER="$(MAINTAINER)" scripts/release/release.sh

reproducible: ## the program and what is released of it are built twice, in different folders, and must have the same bytes
	@scripts/reproducible.sh '$(VERSION)'

clean: ## what the targets above made
	rm -rf bin dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile
