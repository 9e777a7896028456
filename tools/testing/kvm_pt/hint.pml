/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hint protocol of include/linux/kvm_pt_iter.h, for spin
 *
 * A root entry points to an upper table of two entries, each of which is
 * absent, points to a last-level table of two leaves, or is a huge leaf.  Two
 * faults, a zap that may yield before each entry and whose range is any, a
 * reader that replaces a table by a huge leaf, and one that unlinks a table
 * (NX huge page recovery) run against each other.  Steps are single accesses to
 * memory; memory is sequentially consistent.
 *
 * "hint" is what has to hold at every moment.  It is what a walk relies on that
 * steps over a hinted entry, so such walks need no process of their own: what a
 * reader could see is checked in every state.
 *
 * Each of these breaks it, which must be noticed:
 *
 *	-DINSTALL_FIRST		the leaf is installed before the hints are cleared
 *	-DCLEAR_LOWEST		only the hint next to the leaf is cleared
 *	-DDROP_LOCK		the lock is dropped between clearing and install
 *	-DKEEP_PROOF		what was seen before a yield counts as proof
 *	-DPART_OF_TABLE		so does the part of a table that is in the range
 *	-DBLIND_CLEAR		the hint is cleared by a store, not by cmpxchg
 *	-DSET_SHARED		the zap holds the lock for read only
 */

#define TABLES	4	/* of the last level; not reused after they were removed */
#define NONE	TABLES

#define FROZEN	2	/* a leaf of a table that was removed */

/* Entries of the upper table: type and hint are one word in memory. */
#define ABSENT	0
#define HUGE	1
#define TABLE	2
#define HINTED	3

byte state[2];
byte table[2];
byte leaf[TABLES * 2];
byte unused;
bool top_hinted;

byte readers;
bool writer;

inline read_lock()	{ atomic { !writer -> readers++ } }
inline read_unlock()	{ readers-- }
inline write_lock()	{ atomic { !writer && readers == 0 -> writer = true } }
inline write_unlock()	{ writer = false }
#ifdef SET_SHARED
#define zap_lock	read_lock
#define zap_unlock	read_unlock
#else
#define zap_lock	write_lock
#define zap_unlock	write_unlock
#endif

/* Is there a live leaf below entry n of the upper table? */
#define below(n)	((state[n] == TABLE || state[n] == HINTED) && \
			 (leaf[table[n] * 2] == 1 || leaf[table[n] * 2 + 1] == 1))
#define live(n)		(state[n] == HUGE || below(n))

/* A table that was removed stays so. */
#define stale(n)	((state[n] == TABLE || state[n] == HINTED) && \
			 leaf[table[n] * 2] == FROZEN)

ltl hint { [] (!(top_hinted && (live(0) || live(1))) &&
	       !(state[0] == HINTED && below(0)) &&
	       !(state[1] == HINTED && below(1)) &&
	       !stale(0) && !stale(1)) }

/* cmpxchg of an entry of the upper table, both words of which were read. */
inline cmpxchg(n, old_state, old_table, new_state, new_table, ok)
{
	atomic {
		if
		:: state[n] == old_state && table[n] == old_table ->
			state[n] = new_state;
			table[n] = new_table;
			ok = true
		:: else -> ok = false
		fi
	}
}

inline load(n, s, t)
{
	atomic { s = state[n]; t = table[n] }
}

inline clear_top()
{
	/* Nothing but the hint ever changes in this entry. */
#ifdef CLEAR_LOWEST
	skip
#else
	if
	:: top_hinted -> top_hinted = false
	:: else
	fi
#endif
}

/* Tables are made with their content; the pointer is published afterwards. */
inline new_table(t, content)
{
	atomic {
		if
		:: unused < TABLES ->
			t = unused;
			unused++;
			leaf[t * 2] = content;
			leaf[t * 2 + 1] = content
		:: else -> t = NONE
		fi
	}
}

proctype fault(byte times)
{
	byte n, j, s, t, t2;
	bool ok;

	do
	:: times == 0 -> break
	:: times > 0 ->
		times--;
		atomic {
			if :: n = 0 :: n = 1 fi;
			if :: j = 0 :: j = 1 fi
		}
		read_lock();
#ifndef INSTALL_FIRST
		clear_top();
#endif
again:
		load(n, s, t);
		if
		:: s == HUGE ->
			/* Split it, or be content. */
			if
			:: true
			:: new_table(t2, 1);
				if
				:: t2 != NONE -> cmpxchg(n, s, t, TABLE, t2, ok)
				:: else
				fi
			fi
		:: s == ABSENT ->
			new_table(t2, 0);
			if
			:: t2 != NONE ->
				cmpxchg(n, s, t, TABLE, t2, ok);
				goto again
			:: else
			fi
		:: else ->
#ifndef INSTALL_FIRST
			if
			:: s == HINTED ->
#ifdef BLIND_CLEAR
				atomic { state[n] = TABLE; table[n] = t };
				ok = true;
#else
				cmpxchg(n, s, t, TABLE, t, ok);
#endif
				if
				:: !ok -> goto again
				:: else
				fi
			:: else
			fi;
#endif
#ifdef DROP_LOCK
			read_unlock();
			read_lock();
#endif
			/* cmpxchg: not if it is frozen. */
			atomic {
				if
				:: leaf[t * 2 + j] == 0 -> leaf[t * 2 + j] = 1
				:: else
				fi
			};
#ifdef INSTALL_FIRST
			cmpxchg(n, HINTED, t, TABLE, t, ok);
			clear_top()
#endif
		fi;
		read_unlock()
	od
}

/* Freezes and frees a table that is no longer linked. */
inline remove(t)
{
	leaf[t * 2] = FROZEN;
	leaf[t * 2 + 1] = FROZEN
}

/* A fault, or huge page recovery, maps all of what a table maps. */
proctype huge(byte n)
{
	byte s, t;
	bool ok;

	read_lock();
	clear_top();
	load(n, s, t);
	cmpxchg(n, s, t, HUGE, NONE, ok);
	if
	:: ok && (s == TABLE || s == HINTED) -> remove(t)
	:: else
	fi;
	read_unlock()
}

/* NX huge page recovery: like huge, but a hint that goes away is no change. */
proctype unlink(byte n)
{
	byte s, t, s2, t2;
	bool ok;

	read_lock();
	load(n, s, t);
	do
	:: s == TABLE || s == HINTED ->
		cmpxchg(n, s, t, ABSENT, NONE, ok);
		if
		:: ok -> remove(t); break
		:: else
		fi;
		load(n, s2, t2);
		if
		:: t2 == t && (s2 == TABLE || s2 == HINTED) -> s = s2
		:: else -> break
		fi
	:: else -> break
	od;
	read_unlock()
}

/*
 * @pos is the leaf to go on with, @empty_table and @empty_upper are the proofs.
 * In the walk's own hold of the lock nobody else changes anything, so what it
 * does between two entries is one step.
 */
proctype zap(byte times)
{
	byte start, end, pos;
	bool empty_table, empty_upper;

	do
	:: times == 0 -> break
	:: times > 0 ->
		times--;
		atomic {
			if :: start = 0 :: start = 1 :: start = 2 :: start = 3 fi;
			if :: end = 1 :: end = 2 :: end = 3 :: end = 4 fi;
			pos = start;
			empty_table = (pos % 2 == 0);
			empty_upper = (pos == 0);
#ifdef PART_OF_TABLE
			empty_table = true;
			empty_upper = true
#endif
		}
		zap_lock();
		do
		:: pos >= end || top_hinted -> break
		:: pos < end && !top_hinted ->
			/* Yield, and start anew. */
			if
			:: true
			:: zap_unlock();
				zap_lock();
#ifndef KEEP_PROOF
				empty_table = (pos % 2 == 0);
				empty_upper = (pos == 0);
#endif
			fi;
			if
			:: state[pos / 2] == HUGE || state[pos / 2] == ABSENT ->
				state[pos / 2] = ABSENT;
				table[pos / 2] = NONE;
				pos = (pos / 2 + 1) * 2;
				empty_table = true
			:: state[pos / 2] == HINTED ->
				pos = (pos / 2 + 1) * 2;
				empty_table = true
			:: state[pos / 2] == TABLE ->
				atomic {
					if
					:: leaf[table[pos / 2] * 2 + pos % 2] == 1 ->
						leaf[table[pos / 2] * 2 + pos % 2] = 0
					:: else
					fi
				};
				pos++;
				if
				:: pos % 2 == 1 && pos < end
				:: else ->
					/* The table, or its part, is done. */
#ifdef PART_OF_TABLE
					pos = (pos + 1) / 2 * 2;
#endif
					if
					:: empty_table && pos % 2 == 0 ->
						state[pos / 2 - 1] = HINTED
					:: else -> empty_upper = false
					fi;
					empty_table = (pos % 2 == 0)
				fi
			fi
		od;
		/* Of the upper table all has been passed. */
		if
		:: pos >= 4 && empty_upper && !top_hinted -> top_hinted = true
		:: else
		fi;
		zap_unlock()
	od
}

init
{
	atomic {
		state[0] = TABLE;
		table[0] = 0;
		state[1] = ABSENT;
		table[1] = NONE;
		unused = 1;
		run zap(2);
		run fault(1);
		run fault(1);
		if :: run huge(0) :: run unlink(0) fi
	}
}
