//! The allocator, for what the process keeps of the memory that it freed. An agent that was busy once, with its first set or
//! after a long absence, holds from then on what its allocator cannot give back: with 5,000 objects 15 MB of which 8 are
//! used by glibc's, and many times that by mimalloc.
//!
//! jemalloc puts what is of one size together. As set here, all threads share one heap and none keeps any for itself, which
//! suits a process that mostly waits: with caches of their own they hold 13 MB more. What is free goes back at once. A delay
//! would save some of the kernel's time during a first sync, and leave 5 MB that nobody gives back: jemalloc does so in
//! passing, which ends with the work, and its thread for it does not begin for less than four.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

const SETTINGS: &[u8] = b"narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0,thp:never\0";

#[expect(
    unsafe_code,
    reason = "the name under which jemalloc looks for its settings, and no other library for anything"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &u8 = &SETTINGS[0];
