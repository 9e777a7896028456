// SPDX-License-Identifier: GPL-2.0
/*
 * KVM prefault: after a guest fault, map the neighbours that are already there
 *
 * A guest whose memory is present in the host but not in KVM's page tables, as
 * after a restore from a snapshot, takes one exit for each page that it
 * touches.  The engine in this file makes one fault serve a whole window of
 * pages.  It is best effort and one pass:
 *
 *   window   the aligned block around the fault, cut at the memslot's edges
 *   present  where the host's page tables may have pages in it
 *   holes    what KVM has not mapped of that (architecture, without mmu_lock)
 *   pages    what the host's page tables have for the holes (present or nothing:
 *            no fault, no allocation, no userfaultfd event, no wait)
 *   install  into entries that are still empty (architecture, mmu_lock)
 *
 * All but the last are read without mmu_lock, and no page is referenced.  What
 * makes their use safe is that mmu_invalidate_seq is sampled before any and
 * compared, for all of a batch, under mmu_lock: whoever takes a page away from
 * the host's page tables, or changes the attributes of its gfn, has bumped it or
 * has marked an invalidation of that range as in progress.  Once it has been
 * compared, the host still maps the page, and goes on doing so for as long as
 * mmu_lock is held.  The memslot is the one that the
 * fault itself used, in the same kvm->srcu section: who replaces it waits for
 * that section before it zaps or write-protects what the old one was used for.
 *
 * The pages of a window are served in batches, each with a short hold of
 * mmu_lock, so that neither a waiting writer nor a signal waits for a window.
 *
 * A fault that mapped a huge page is followed by the same for huge pages: the
 * entries of a window are then those of the table above.  What the host maps by
 * pages is left out, as is what KVM has a table of pages for.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/highmem.h>
#include <linux/kvm_host.h>
#include <linux/kvm_prefault.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/pgtable.h>
#include <linux/secretmem.h>
#include <linux/unroll.h>

#include <trace/events/kvm.h>

#include "kvm_mm.h"

/* Window of new VMs in bytes, 0 for none. */
static unsigned long auto_prefault_size;

static int auto_prefault_size_set(const char *val, const struct kernel_param *kp)
{
	unsigned long size;
	int r;

	r = kstrtoul(val, 0, &size);
	if (r)
		return r;

	if (!kvm_prefault_size_valid(size, KVM_PREFAULT_SIZE_MAX))
		return -EINVAL;

	WRITE_ONCE(auto_prefault_size, size);
	return 0;
}

static const struct kernel_param_ops auto_prefault_size_ops = {
	.set = auto_prefault_size_set,
	.get = param_get_ulong,
};
module_param_cb(auto_prefault_size, &auto_prefault_size_ops,
		&auto_prefault_size, 0644);
MODULE_PARM_DESC(auto_prefault_size,
		 "Prefault window of new VMs in bytes (default 0, off)");

#ifndef kvm_arch_prefault_batch
static unsigned int kvm_arch_prefault_batch(void)
{
	return KVM_PREFAULT_BATCH;
}
#endif

#ifndef kvm_arch_prefault_default
static unsigned long kvm_arch_prefault_default(struct kvm *kvm)
{
	return 0;
}
#endif

/**
 * kvm_prefault_init_vm() - give a new VM the default window
 * @kvm: the VM, after kvm_arch_init_vm()
 */
void kvm_prefault_init_vm(struct kvm *kvm)
{
	unsigned long size = min(READ_ONCE(auto_prefault_size),
				 kvm_arch_prefault_max_size(kvm));

	kvm->auto_prefault = size ?: kvm_arch_prefault_default(kvm);
}

/**
 * kvm_prefault_check_extension() - KVM_CHECK_EXTENSION(KVM_CAP_AUTO_PREFAULT)
 * @kvm: the VM, or NULL for /dev/kvm
 *
 * Return: the largest window in bytes, 0 if there is none.
 */
long kvm_prefault_check_extension(struct kvm *kvm)
{
	return kvm_arch_prefault_max_size(kvm);
}

/**
 * kvm_prefault_enable_cap() - KVM_ENABLE_CAP(KVM_CAP_AUTO_PREFAULT)
 * @kvm: the VM
 * @cap: args[0] is the window in bytes, args[1] has flags
 *
 * Running vCPUs use the new window from their next fault on.
 *
 * Return: 0, or -EINVAL and nothing has changed.
 */
int kvm_prefault_enable_cap(struct kvm *kvm, const struct kvm_enable_cap *cap)
{
	unsigned long max = kvm_arch_prefault_max_size(kvm);
	unsigned long config = KVM_PREFAULT_SET;

	if (!max || cap->flags || cap->args[2] || cap->args[3])
		return -EINVAL;

	if (cap->args[1] & ~KVM_AUTO_PREFAULT_FIXED)
		return -EINVAL;

	if (!kvm_prefault_size_valid(cap->args[0], max))
		return -EINVAL;

	if (cap->args[1] & KVM_AUTO_PREFAULT_FIXED)
		config |= KVM_PREFAULT_FIXED;

	WRITE_ONCE(kvm->auto_prefault, cap->args[0] | config);
	return 0;
}

/* Memory that the host itself must not map any more, which is why GUP refuses it. */
static bool is_secret(struct folio *folio)
{
	struct address_space *mapping;

	if (!IS_ENABLED(CONFIG_SECRETMEM) || folio_test_large(folio) ||
	    folio_test_anon(folio))
		return false;

	mapping = folio->mapping;
	return mapping && secretmem_mapping(mapping);
}

static __always_inline bool may_use_page(unsigned long pfn, bool writable)
{
	struct page *page = pfn_to_page(pfn);
	struct folio *folio = page_folio(page);

	if (PageReserved(page) || is_secret(folio))
		return false;

	/* Most are dirty already: do not make their cache line bounce. */
	if (writable && !folio_test_dirty(folio))
		folio_set_dirty(folio);

	return true;
}

/**
 * kvm_prefault_select() - drop what the guest must not be given
 * @batch: pages, none of which the caller has touched yet
 * @writable: the guest can write them from now on without another lookup
 *
 * Dropped are pages that GUP would refuse, and those that are not ordinary
 * memory: they are up to the fault path.
 *
 * Marks pages dirty that the guest can write: KVM may make an entry writable
 * later without looking at the host again, and a folio must not be marked dirty
 * outside of mmu_lock, which keeps the page from being unmapped and written back
 * in between.
 *
 * Context: mmu_lock is held, for read or write, and no invalidation of the pages'
 *	    range has been missed: the host still maps them.
 */
void kvm_prefault_select(struct kvm_prefault_batch *batch, bool writable)
{
	unsigned long i, nr = 0;

	/* Hardly ever is one dropped: move nothing before that. */
	while (nr < batch->nr && may_use_page(batch->pfn[nr], writable))
		nr++;

	for (i = nr + 1; i < batch->nr; i++) {
		if (!may_use_page(batch->pfn[i], writable))
			continue;

		batch->index[nr] = batch->index[i];
		batch->pfn[nr] = batch->pfn[i];
		nr++;
	}
	batch->nr = nr;
}

/*
 * What the host's page tables have for an address: its entry in a table, or
 * else, if anything, its page in a huge page.
 */
struct host_map {
	pte_t *ptep;
	unsigned long pfn;
	bool readable;
	bool writable;
};

static pte_t *map_host_ptep(pmd_t pmd, unsigned long hva)
{
	if (IS_ENABLED(CONFIG_HIGHPTE))
		return (pte_t *)kmap_local_page(pmd_page(pmd)) + pte_index(hva);

	return pte_offset_kernel(&pmd, hva);
}

static void unmap_host_ptep(pte_t *ptep)
{
	if (IS_ENABLED(CONFIG_HIGHPTE) && ptep)
		kunmap_local(ptep);
}

static struct host_map host_map_pud(pud_t pud, unsigned long hva)
{
	return (struct host_map){
		.pfn = pud_pfn(pud) + ((hva & ~PUD_MASK) >> PAGE_SHIFT),
		.readable = pud_access_permitted(pud, false) && !pud_special(pud) &&
			    !pte_protnone(__pte(pud_val(pud))),
		.writable = pud_access_permitted(pud, true),
	};
}

static struct host_map host_map_pmd(pmd_t pmd, unsigned long hva)
{
	return (struct host_map){
		.pfn = pmd_pfn(pmd) + ((hva & ~PMD_MASK) >> PAGE_SHIFT),
		.readable = pmd_access_permitted(pmd, false) && !pmd_special(pmd) &&
			    !pmd_protnone(pmd),
		.writable = pmd_access_permitted(pmd, true),
	};
}

/*
 * As in GUP-fast, the caller has interrupts off, so that no table is freed under
 * this walk, and every level is read once, so that one that changes is not
 * misread.
 */
static struct host_map host_map(struct mm_struct *mm, unsigned long hva)
{
	pgd_t *pgdp = pgd_offset(mm, hva), pgd = pgdp_get(pgdp);
	struct host_map nothing = {};
	p4d_t *p4dp, p4d;
	pud_t *pudp, pud;
	pmd_t *pmdp, pmd;

	if (pgd_none(pgd))
		return nothing;

	p4dp = p4d_offset_lockless(pgdp, pgd, hva);
	p4d = p4dp_get(p4dp);
	if (p4d_none(p4d) || !p4d_present(p4d))
		return nothing;

	pudp = pud_offset_lockless(p4dp, p4d, hva);
	pud = pudp_get(pudp);
	if (pud_none(pud) || !pud_present(pud))
		return nothing;

	if (pud_leaf(pud))
		return host_map_pud(pud, hva);

	pmdp = pmd_offset_lockless(pudp, pud, hva);
	pmd = pmdp_get_lockless(pmdp);
	if (pmd_none(pmd) || !pmd_present(pmd))
		return nothing;

	if (pmd_leaf(pmd))
		return host_map_pmd(pmd, hva);

	return (struct host_map){ .ptep = map_host_ptep(pmd, hva) };
}

/* The pages from @hva on, of @max at most, that one PMD of the host maps. */
static unsigned int pages_of_pmd(const struct kvm_prefault *p, unsigned long hva,
				 unsigned int max)
{
	unsigned int nr;

	if (p->order)
		return 1;

	nr = PTRS_PER_PTE - ((hva >> PAGE_SHIFT) & (PTRS_PER_PTE - 1));
	return min(nr, max);
}

/*
 * What is done with pages [first, first + nr) of a window, all of which are in
 * one table or huge page of the host; @map is of the first one.
 */
typedef void (*host_look_t)(void *data, const struct host_map *map,
			    unsigned int first, unsigned int nr);

/* Calls @look for pages [first, end) of the window, table by table of the host. */
static __always_inline void look_at_host(struct kvm *kvm,
					 const struct kvm_prefault *p,
					 unsigned int first, unsigned int end,
					 host_look_t look, void *data)
{
	unsigned long hva = __gfn_to_hva_memslot(p->slot, kvm_prefault_gfn(p, first));
	unsigned long flags;
	struct host_map map;
	unsigned int nr;

	local_irq_save(flags);
	for (; first < end; first += nr, hva += nr * PAGE_SIZE << p->order) {
		nr = pages_of_pmd(p, hva, end - first);
		map = host_map(kvm->mm, hva);
		if (p->order && map.ptep) {
			/* No huge page. */
			unmap_host_ptep(map.ptep);
			map.ptep = NULL;
		}
		look(data, &map, first, nr);
		unmap_host_ptep(map.ptep);
	}
	local_irq_restore(flags);
}

static __always_inline bool ptes_none(const pte_t *ptep)
{
	/* A hint: what is decided by it is checked again. */
	return pte_none(__pte(data_race(pte_val(ptep[0]) | pte_val(ptep[1]) |
					pte_val(ptep[2]) | pte_val(ptep[3]) |
					pte_val(ptep[4]) | pte_val(ptep[5]) |
					pte_val(ptep[6]) | pte_val(ptep[7]))));
}

/* Returns a bit for each of a word of PTEs whose group is not empty. */
static __always_inline unsigned long present_word(const pte_t *ptep)
{
	unsigned long present = 0;
	unsigned int i;

	unrolled_full
	for (i = 0; i < BITS_PER_LONG; i += KVM_PREFAULT_GROUP)
		if (!ptes_none(ptep + i))
			present |= KVM_PREFAULT_GROUP_MASK << i;

	return present;
}

/* The same for fewer of them. */
static unsigned long present_groups(const pte_t *ptep, unsigned int nr)
{
	const pte_t *end = ptep + round_down(nr, KVM_PREFAULT_GROUP);
	unsigned long group = KVM_PREFAULT_GROUP_MASK, present = 0;

	for (; ptep < end; ptep += KVM_PREFAULT_GROUP) {
		if (!ptes_none(ptep))
			present |= group;
		group <<= KVM_PREFAULT_GROUP;
	}

	if (nr % KVM_PREFAULT_GROUP)
		present |= group & GENMASK(nr - 1, 0);

	return present;
}

static __always_inline void note_present(void *data, const struct host_map *map,
					 unsigned int first, unsigned int nr)
{
	unsigned long *present = data;
	pte_t *ptep = map->ptep;
	unsigned int shift, len;

	if (!ptep) {
		if (map->readable)
			bitmap_set(present, first, nr);
		return;
	}

	for (; nr; nr -= len, first += len, ptep += len) {
		shift = first % BITS_PER_LONG;
		len = min(nr, BITS_PER_LONG - shift);
		if (len == BITS_PER_LONG)
			present[BIT_WORD(first)] = present_word(ptep);
		else
			present[BIT_WORD(first)] |= present_groups(ptep, len) << shift;
	}
}

/*
 * Notes in @p->present where the host may have pages, in a first and coarse
 * look: a group of eight is passed over if there is nothing in it.
 */
static void find_present(struct kvm *kvm, struct kvm_prefault *p)
{
	look_at_host(kvm, p, 0, p->window.nr, note_present, p->present);
}

/* A batch that is being filled, and the attempt that it belongs to. */
struct batch_fill {
	struct kvm_prefault *p;
	struct kvm_prefault_batch *batch;
};

/*
 * Puts a page into the batch, at @nr, if it is of the batch's kind. Returns the
 * number of pages in the batch, which takes fewer instructions than to count in it.
 */
static __always_inline unsigned long
take_page(const struct batch_fill *fill, unsigned long nr, unsigned int n,
	  unsigned long pfn, bool readable, bool writable)
{
	struct kvm_prefault_batch *batch = fill->batch;
	struct kvm_prefault *p = fill->p;

	if (batch->writable ? writable : readable) {
		batch->index[nr] = n;
		batch->pfn[nr] = pfn;
		return nr + 1;
	}

	if (readable && p->may_ro)
		__set_bit(n, p->ro);
	else
		p->absent++;
	return nr;
}

/* riscv: all entries of a larger page have the PFN of its first one. */
static __always_inline bool is_napot(pte_t pte)
{
#ifdef CONFIG_RISCV
	return pte_napot(pte);
#else
	return false;
#endif
}

/* As in GUP-fast: an ordinary page, which userspace may access itself. */
static __always_inline bool can_access(pte_t pte, bool write)
{
	return pte_access_permitted(pte, write) && !pte_special(pte) &&
	       !pte_protnone(pte) && !is_napot(pte);
}

static __always_inline void take_pages(void *data, const struct host_map *map,
				       unsigned int first, unsigned int nr)
{
	const struct batch_fill *fill = data;
	bool rw = !(fill->p->slot->flags & KVM_MEM_READONLY), writable;
	unsigned long taken = fill->batch->nr;
	unsigned int i;
	pte_t pte;

	for (i = 0; map->ptep && i < nr; i++) {
		pte = ptep_get_lockless(map->ptep + i);
		writable = rw && can_access(pte, true);
		taken = take_page(fill, taken, first + i, pte_pfn(pte),
				  writable || can_access(pte, false), writable);
	}

	for (i = 0; !map->ptep && i < nr; i++)
		taken = take_page(fill, taken, first + i, map->pfn + i, map->readable,
				  map->readable && map->writable && rw);

	fill->batch->nr = taken;
}

static bool must_stop(struct kvm *kvm)
{
	return need_resched() || signal_pending(current) ||
#ifdef KVM_HAVE_MMU_RWLOCK
	       rwlock_needbreak(&kvm->mmu_lock);
#else
	       spin_needbreak(&kvm->mmu_lock);
#endif
}

/* Installs what the batch holds, and empties it. */
static void flush_batch(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
			struct kvm_prefault_batch *batch)
{
	unsigned int found;

	if (!batch->nr)
		return;

	found = batch->nr;
	p->found += found;
	batch->mapped = 0;
	if (p->stop == KVM_PREFAULT_DONE && must_stop(vcpu->kvm))
		p->stop = KVM_PREFAULT_BUSY;
	if (p->stop == KVM_PREFAULT_DONE)
		kvm_arch_prefault_map(vcpu, p, batch);

	if (batch->mapped) {
		p->first = p->mapped ? min(p->first, batch->index[0]) : batch->index[0];
		p->last = max(p->last, batch->index[batch->nr - 1]);
		p->mapped += batch->mapped;
	}
	vcpu->stat.generic.prefault_mapped += batch->mapped << p->order;
	vcpu->stat.generic.prefault_raced += (found - batch->mapped) << p->order;

	batch->nr = 0;
}

/* Looks up pages [first, end) in the host and installs them, batch by batch. */
static void serve_run(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
		      struct kvm_prefault_batch *batch,
		      unsigned int first, unsigned int end)
{
	unsigned int max = kvm_arch_prefault_batch(), next;
	struct batch_fill fill = { .p = p, .batch = batch };

	for (; first < end && p->stop == KVM_PREFAULT_DONE; first = next) {
		next = min(end, first + max - batch->nr);
		look_at_host(vcpu->kvm, p, first, next, take_pages, &fill);

		if (batch->nr == max)
			flush_batch(vcpu, p, batch);
	}
}

/*
 * Serves the holes in @todo that the host maps writable, or read-only.  Those
 * of the other kind are left in @p->ro.
 */
static void serve_pages(struct kvm_vcpu *vcpu, struct kvm_prefault *p,
			const unsigned long *todo, bool writable)
{
	/* Large, and only what is below @nr is ever read. */
	struct kvm_prefault_batch batch __uninitialized;
	unsigned int first, end;

	batch.nr = 0;
	batch.writable = writable;

	for_each_set_bitrange(first, end, todo, p->window.nr) {
		serve_run(vcpu, p, &batch, first, end);
		if (p->stop != KVM_PREFAULT_DONE)
			break;
	}

	flush_batch(vcpu, p, &batch);
}

/* As bitmap_weight(); most words of a window are all zeroes or all ones. */
static unsigned int count_pages(const unsigned long *map, unsigned int nr)
{
	const unsigned long *end = map + BITS_TO_LONGS(nr);
	unsigned int n = 0;

	for (; map < end; map++) {
		if (*map == ~0UL)
			n += BITS_PER_LONG;
		else if (*map)
			n += hweight_long(*map);
	}
	return n;
}

static void serve_holes(struct kvm_vcpu *vcpu, struct kvm_prefault *p)
{
	unsigned int nr = p->window.nr, present;

	/* Where the host has nothing there is no need to look at KVM's tables. */
	find_present(vcpu->kvm, p);
	present = count_pages(p->present, nr);
	p->absent = nr - present;

	if (present && kvm_arch_prefault_holes(vcpu, p)) {
		serve_pages(vcpu, p, p->holes, true);
		if (p->stop == KVM_PREFAULT_DONE && p->may_ro)
			serve_pages(vcpu, p, p->ro, false);
	}

	if (!p->found)
		p->stop = p->absent ? KVM_PREFAULT_ABSENT : KVM_PREFAULT_NO_HOLE;
}

/* Serves @p->window of @p->slot. */
static void serve_window(struct kvm_vcpu *vcpu, struct kvm_prefault *p)
{
	serve_holes(vcpu, p);

	vcpu->stat.generic.prefault_windows++;
	vcpu->stat.generic.prefault_absent += p->absent << p->order;

	trace_kvm_prefault(vcpu->vcpu_id, p->window.gfn, p->window.nr << p->order,
			   p->mapped << p->order, p->stop);
}

/* Whatever an attempt depends on has to be read after this. */
static unsigned long sample_mmu_seq(struct kvm *kvm)
{
	unsigned long mmu_seq = kvm->mmu_invalidate_seq;

	/* Pairs with the smp_wmb() in kvm_mmu_invalidate_end(). */
	smp_rmb();
	return mmu_seq;
}

static struct kvm_prefault_policy *policy_of(struct kvm_vcpu *vcpu, unsigned int order)
{
	return order ? &vcpu->prefault_huge : &vcpu->prefault;
}

/*
 * Is this fault to be left alone, since too many before it found nothing?  Asked
 * first of all, and all that such faults cost.
 */
static __always_inline bool backs_off(struct kvm_vcpu *vcpu, unsigned int order,
				      unsigned long config)
{
	if (config & KVM_PREFAULT_FIXED || !kvm_prefault_backoff(policy_of(vcpu, order)))
		return false;

	vcpu->stat.generic.prefault_backoff++;
	return true;
}

/* The length of the window in pages of @order, or 0 if there is to be none. */
static __always_inline u64 window_pages(struct kvm_vcpu *vcpu, gfn_t gfn,
					unsigned int order, unsigned long config)
{
	u64 nr = (config & ~KVM_PREFAULT_FLAGS) >> PAGE_SHIFT >> order;
	unsigned int window_order;

	if (config & KVM_PREFAULT_FIXED)
		return nr;

	window_order = kvm_prefault_policy_begin(policy_of(vcpu, order), gfn >> order,
						 ilog2(nr));
	if (window_order)
		return 1ULL << window_order;

	vcpu->stat.generic.prefault_backoff++;
	return 0;
}

/* Serves the window of a fault, and lets the vCPU learn from it. */
static __always_inline void serve_fault(struct kvm_vcpu *vcpu, gfn_t gfn,
					struct kvm_prefault *p, unsigned int order,
					unsigned long config)
{
	gfn_t window = p->window.gfn >> order;

	serve_window(vcpu, p);

	/* What was cut short says nothing about the rest of the window. */
	if (!(config & KVM_PREFAULT_FIXED) &&
	    (!p->mapped || p->stop == KVM_PREFAULT_DONE))
		kvm_prefault_policy_end(policy_of(vcpu, order), gfn >> order,
					window + p->first, window + p->last,
					p->mapped, p->absent);
}

/* What is in KVM's own memslots is mapped by rules of its own. */
static bool may_serve(const struct kvm_memory_slot *slot)
{
	return slot->id < KVM_USER_MEM_SLOTS &&
	       !(slot->flags & KVM_MEMSLOT_INVALID) && !kvm_memslot_is_gmem_only(slot);
}

/*
 * Not inline: what a window needs on the stack may be zeroed whether there is a
 * window or not, and faults without one shall cost nothing.
 */
static noinline void prefault_window(struct kvm_vcpu *vcpu,
				     const struct kvm_memory_slot *slot, gfn_t gfn,
				     struct kvm_prefault_window window,
				     unsigned long mmu_seq, bool may_ro,
				     unsigned long config)
{
	struct kvm_prefault p = {
		.slot = slot,
		.window = window,
		.mmu_seq = mmu_seq,
		.may_ro = may_ro,
	};

	if (may_serve(slot))
		serve_fault(vcpu, gfn, &p, 0, config);
}

/**
 * kvm_auto_prefault_within() - __kvm_auto_prefault() for a caller who knows more
 * @vcpu: the vCPU that faulted
 * @slot: the memslot that the fault was fixed with
 * @gfn: the gfn that faulted
 * @within: where in the memslot the window has to stay
 * @mmu_seq: kvm->mmu_invalidate_seq from before @within was looked at
 * @may_ro: map pages that the host has mapped read-only, too
 * @config: kvm->auto_prefault as read by the caller; there is a window
 *
 * What the caller found out about the surroundings of the fault, e.g. about its
 * VMA, holds for as long as mmu_invalidate_seq is what it was at that time.
 *
 * Context: as for __kvm_auto_prefault().
 */
void kvm_auto_prefault_within(struct kvm_vcpu *vcpu,
			      const struct kvm_memory_slot *slot, gfn_t gfn,
			      struct kvm_prefault_window within,
			      unsigned long mmu_seq, bool may_ro,
			      unsigned long config)
{
	u64 nr;

	if (backs_off(vcpu, 0, config))
		return;

	nr = window_pages(vcpu, gfn, 0, config);
	if (nr)
		prefault_window(vcpu, slot, gfn,
				kvm_prefault_window(gfn, nr, within.gfn, within.nr),
				mmu_seq, may_ro, config);
}

/* Not inline: it saves more registers than a fault that backs off needs to. */
static noinline void prefault_around(struct kvm_vcpu *vcpu,
				     const struct kvm_memory_slot *slot, gfn_t gfn,
				     bool may_ro, unsigned long config)
{
	u64 nr = window_pages(vcpu, gfn, 0, config);

	if (nr)
		prefault_window(vcpu, slot, gfn,
				kvm_prefault_window(gfn, nr, slot->base_gfn, slot->npages),
				sample_mmu_seq(vcpu->kvm), may_ro, config);
}

/**
 * __kvm_auto_prefault() - map the neighbours of a fault that was just fixed
 * @vcpu: the vCPU that faulted
 * @slot: the memslot that the fault was fixed with
 * @gfn: the gfn that faulted
 * @may_ro: map pages that the host has mapped read-only, too
 * @config: kvm->auto_prefault as read by the caller; there is a window
 *
 * Best effort: there is nothing to report to the caller, whose fault is fixed.
 * The caller has made sure that the fault was an ordinary one, fixed by a
 * last-level entry: no MMIO, no private memory, no page without a struct page.
 *
 * Context: vcpu->mutex and kvm->srcu are held since before @slot was looked
 *	    up, mmu_lock is not; current->mm is the VM's.  Does not sleep.
 */
void __kvm_auto_prefault(struct kvm_vcpu *vcpu,
			 const struct kvm_memory_slot *slot, gfn_t gfn,
			 bool may_ro, unsigned long config)
{
	if (!backs_off(vcpu, 0, config))
		prefault_around(vcpu, slot, gfn, may_ro, config);
}

/**
 * kvm_auto_prefault_huge() - __kvm_auto_prefault() for a fault that was fixed by
 *			      a huge page
 * @vcpu: the vCPU that faulted
 * @slot: the memslot that the fault was fixed with
 * @gfn: the gfn that faulted
 * @order: log2 of the pages of the huge page; it is what a PMD of the host maps
 * @may_ro: map pages that the host has mapped read-only, too
 * @config: kvm->auto_prefault as read by the caller; there is a window
 *
 * The window has to be larger than a huge page: it serves no part of one.
 *
 * Context: as for __kvm_auto_prefault().
 */
void kvm_auto_prefault_huge(struct kvm_vcpu *vcpu,
			    const struct kvm_memory_slot *slot, gfn_t gfn,
			    unsigned int order, bool may_ro, unsigned long config)
{
	struct kvm_prefault p = {
		.slot = slot,
		.mmu_seq = sample_mmu_seq(vcpu->kvm),
		.order = order,
		.may_ro = may_ro,
	};
	u64 nr;

	if ((config & ~KVM_PREFAULT_FLAGS) < 2 * PAGE_SIZE << order || !may_serve(slot))
		return;

	if (backs_off(vcpu, order, config))
		return;

	nr = window_pages(vcpu, gfn, order, config);
	if (!nr)
		return;

	p.window = kvm_prefault_huge_window(gfn, nr, order, slot->base_gfn, slot->npages);
	serve_fault(vcpu, gfn, &p, order, config);
}

/**
 * kvm_prefault_resident_within() - kvm_prefault_resident() for a caller who
 *				    knows more
 * @vcpu: the vCPU whose page tables are meant
 * @p: the attempt; slot, mmu_seq and window are set, and the window lies in one
 *	last-level table
 *
 * Context: as for __kvm_auto_prefault().
 * Return: as kvm_prefault_resident().
 */
unsigned int kvm_prefault_resident_within(struct kvm_vcpu *vcpu,
					  struct kvm_prefault *p)
{
	p->may_ro = true;
	serve_window(vcpu, p);

	/* Now what the host does not have counts as well. */
	bitmap_fill(p->present, p->window.nr);
	bitmap_zero(p->holes, p->window.nr);
	if (!kvm_arch_prefault_holes(vcpu, p))
		return 0;

	return find_first_bit(p->holes, p->window.nr);
}

/**
 * kvm_prefault_resident() - map what the host has at the start of a range
 * @vcpu: the vCPU whose page tables are meant
 * @gfn: first gfn of the range
 * @nr: length of the range in pages
 *
 * The batched part of KVM_PRE_FAULT_MEMORY.  The range is looked at up to the
 * end of the memslot and of the last-level table of @gfn.
 *
 * Context: as for __kvm_auto_prefault().
 * Return: the number of pages, from @gfn on, that are mapped now.  0 if the
 *	   first one has to be faulted in: by the caller, who may sleep, and who
 *	   knows what is wrong with it if it cannot be.
 */
unsigned int kvm_prefault_resident(struct kvm_vcpu *vcpu, gfn_t gfn, u64 nr)
{
	struct kvm_memory_slot *slot = kvm_vcpu_gfn_to_memslot(vcpu, gfn);
	struct kvm_prefault p = {
		.slot = slot,
		.mmu_seq = sample_mmu_seq(vcpu->kvm),
	};

	if (!slot || !may_serve(slot))
		return 0;

	nr = min(nr, KVM_PREFAULT_PAGES_MAX - (gfn & (KVM_PREFAULT_PAGES_MAX - 1)));
	nr = min(nr, slot->base_gfn + slot->npages - gfn);
	p.window = (struct kvm_prefault_window){ .gfn = gfn, .nr = nr };

	return kvm_prefault_resident_within(vcpu, &p);
}
