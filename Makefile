.DEFAULT_GOAL := help
.PHONY: help run test chaos chaos-adservices bench bench-quick bench-adservices bench-tokens bench-instructions \
    cluster-test fuzz fuzz-merge sanitize lint build setup clean clean-data

help: ## List these commands.
	@echo 'Ratchet. Commands:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Read from the environment:'
	@echo '  RATCHET_INGRESS_PORT  port of the SDK API in make run (8080)'
	@echo '  RATCHET_DATA          data, sockets and logs of make run (.ratchet)'
	@echo '  RATCHET_BIN_DIR       make run takes the binaries from there and builds nothing'
	@echo '  RATCHET_SHARED        vectors and certificates of the tests (../shared)'
	@echo '  RATCHET_CHAOS_SECONDS         make chaos draws faults for so long (1200); each comes once anyway'
	@echo '  RATCHET_CHAOS_OUTAGE_SECONDS  length of an outage in make chaos (120)'
	@echo '  RATCHET_CHAOS_SEED            order of the faults in make chaos (random, printed)'
	@echo '  RATCHET_CHAOS_ONLY            only faults with this text in their names'
	@echo '  RATCHET_CHAOS_REPORT          file that make chaos writes its table to'
	@echo '  RATCHET_FUZZ_SECONDS  seconds for each target of make fuzz (60)'
	@echo '  RATCHET_FUZZ_ONLY     only these targets, with commas between'
	@echo '  RATCHET_FUZZ_JOBS     targets at a time (the number of processors)'
	@echo '  RATCHET_FUZZ_INPUT    make fuzz only runs this file or folder through the target of RATCHET_FUZZ_ONLY'
	@echo '  RATCHET_SANITIZE      thread or address: make sanitize with that alone'
	@echo '  RATCHET_SANITIZE_ONLY         only tests whose names match this regular expression'

run: setup ## Start all of Ratchet with a private Redis and Postgres; Ctrl-C stops it.
	@exec python3 deploy/dev/run.py

test: setup ## Build and run every test: unit, integration, end to end, and make run itself.
	@exec deploy/dev/test.sh

chaos: setup ## Break everything at random for 20 minutes under load, and print what it did to whom.
	swift build --build-tests --explicit-target-dependency-import-check error
	RATCHET_CHAOS_SECONDS=$${RATCHET_CHAOS_SECONDS:-1200} \
	    RATCHET_CHAOS_OUTAGE_SECONDS=$${RATCHET_CHAOS_OUTAGE_SECONDS:-120} \
	    swift test --skip-build --explicit-target-dependency-import-check error --no-parallel --filter ChaosTests

cluster-test: setup ## The binaries on a Redis Cluster and with Sentinel: servers killed, frozen, moved.
	swift build --build-tests --explicit-target-dependency-import-check error
	RATCHET_CLUSTER_TEST=1 swift test --skip-build --explicit-target-dependency-import-check error --no-parallel \
	    --filter 'EndToEnd.ClusterTests|onACluster'

chaos-adservices: setup ## Kill sweepers 50 times while they ask about 20,000 tokens.
	swift build --build-tests --explicit-target-dependency-import-check error
	RATCHET_CHAOS_ADSERVICES=1 swift test --skip-build --explicit-target-dependency-import-check error --no-parallel \
	    --filter twentyThousandTokensSurviveFiftyKills

bench-adservices: build ## Measure the sweep with a million tokens pending: claims, exchanges, memory.
	swift build --build-tests --explicit-target-dependency-import-check error
	RATCHET_BIN_DIR=.build/release RATCHET_BENCH_ADSERVICES=$${RATCHET_BENCH_ADSERVICES:-1000000} \
	    swift test --skip-build --explicit-target-dependency-import-check error --no-parallel --filter SweeperBench

bench-tokens: setup ## Measure, optimized: the cost of a token check, and how long refused tokens take.
	swift build -c release -Xswiftc -enable-testing --build-tests --scratch-path .build/bench-tests \
	    --explicit-target-dependency-import-check error
	RATCHET_BENCH_TOKENS=1 swift test -c release -Xswiftc -enable-testing --skip-build \
	    --scratch-path .build/bench-tests --explicit-target-dependency-import-check error --no-parallel \
	    --filter TokenBench

bench: setup ## Measure everything beside other software that does the same; a table and .ratchet/bench/latest.json.
	@exec python3 Tests/Bench/bench.py

bench-quick: setup ## The same with one peer a section, one round, less of everything: minutes.
	@exec python3 Tests/Bench/bench.py --quick

bench-instructions: setup ## Count the instructions of the hot paths; fails when one grew by more than 5 %.
	@exec python3 deploy/dev/instructions.py

fuzz: setup ## Fuzz the readers of outside bytes; what breaks one is kept below .build/fuzz/crashes.
	@exec python3 deploy/dev/fuzz.py

fuzz-merge: setup ## Take what make fuzz has found on its way into Tests/Fuzz/Corpus, reduced.
	@exec python3 deploy/dev/fuzz.py --merge

sanitize: setup ## Run the tests under the thread and the address sanitizer (undefined behaviour, leaks too).
	@exec deploy/dev/sanitize.sh

lint: ## Check the format of Swift, the syntax of scripts, and the headers of the C targets.
	@exec deploy/dev/lint.sh

build: setup ## Build the release binaries into .build/release.
	swift build -c release --static-swift-stdlib

setup: ## Install the Debian packages that are missing (run and test do it themselves).
	@deploy/dev/setup.sh

clean: ## Remove what was built; data stays.
	rm -rf .build

clean-data: ## Remove the data of make run (RATCHET_DATA), once it is stopped.
	@exec python3 deploy/dev/run.py --remove-data
