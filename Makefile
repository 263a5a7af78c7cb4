.DEFAULT_GOAL := help
.PHONY: help run test lint build setup clean clean-data

help: ## List these commands.
	@echo 'Ratchet. Commands:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Read from the environment:'
	@echo '  RATCHET_INGRESS_PORT  port of the SDK API in make run (8080)'
	@echo '  RATCHET_CONSOLE_PORT  port of the console in make run (8081)'
	@echo '  RATCHET_DATA          data, sockets and logs of make run (.ratchet)'
	@echo '  RATCHET_BIN_DIR       make run takes the binaries from there and builds nothing'
	@echo '  RATCHET_SHARED        vectors and certificates of the tests (../shared)'

run: setup ## Start all of Ratchet with a private Redis and Postgres; Ctrl-C stops it.
	@exec python3 deploy/dev/run.py

test: setup ## Build and run every test: unit, integration, end to end, and make run itself.
	@exec deploy/dev/test.sh

lint: ## Check the format of Swift, the syntax of scripts, and the headers of the C targets.
	@exec deploy/dev/lint.sh

build: setup ## Build the release binaries into .build/release.
	swift build -c release

setup: ## Install the Debian packages that are missing (run and test do it themselves).
	@deploy/dev/setup.sh

clean: ## Remove what was built; data stays.
	rm -rf .build

clean-data: ## Remove the data of make run (RATCHET_DATA), once it is stopped.
	@exec python3 deploy/dev/run.py --remove-data
