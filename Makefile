# SPDX-License-Identifier: GPL-2.0
# Entry points; lab/ does the work. ARCH=… picks an architecture.

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make demo [ARCH=x86]   restore a VM's memory with auto-prefault off and on
demo:
	@lab/demo $(or $(ARCH),x86)

## make demo-vmm [ARCH=x86]   an unmodified QEMU with a Linux guest, off and on
demo-vmm:
	@lab/demo-vmm $(or $(ARCH),x86)

## make check [ARCH=…]    the tests, under 10 minutes per architecture
check:
	@lab/check $(ARCH)

## make check-full [ARCH=…]   the long forms as well
check-full:
	@lab/check --full $(ARCH)

## make stress ARCH=… SECONDS=… [SEED=…] [DEBUG=1]   everything at once, at random
stress:
	@lab/stress $(if $(DEBUG),--debug) $(if $(SEED),--seed $(SEED)) $(or $(ARCH),x86) $(or $(SECONDS),60)

## make bench [ARCH=…]    base kernel against ours: build/bench/ARCH.tsv, bench/
bench:
	@lab/bench $(ARCH)

## make bench-compare OLD=A.tsv NEW=B.tsv   what differs by more than one per cent
bench-compare:
	@lab/bench-compare "$(OLD)" "$(NEW)"

## make tree              a patched kernel git tree to work in
tree:
	@lab/series tree

## make refresh           bring that tree's changes back into this repo
refresh:
	@lab/series refresh

## make series-check      builds and checks that series, commit by commit
series-check:
	@lab/series-check

## make series OUT=DIR    the mail-ready series
series:
	@lab/series series "$(OUT)"

.PHONY: help demo demo-vmm check check-full stress bench bench-compare tree refresh series series-check
