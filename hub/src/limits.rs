//! Every bound of the hub alone, with its arithmetic. Those that agents must know too are in `tideline_common::limits`.

use std::time::Duration;

use tideline_apiserver::BODY_BYTES_MAX;
use tideline_common::limits::{
    DESIRED_OBJECTS_MAX, HUB_URL_BYTES_MAX, POLL_WAIT_SECONDS_MAX, REPORT_PAGE_BYTES_MAX, REQUEST_BYTES_MAX,
    STATUS_BYTES_MAX,
};
use tideline_common::signature;
use tideline_common::wire::codec::QUERY_BYTES_MAX;
use tideline_common::{CAPABILITIES_MAX, CAPABILITY_BYTES_MAX};

/// Connections of agents: 10,000 with a long poll and a report each, at HTTP/1.1.
pub(crate) const AGENT_CONNECTIONS_MAX: usize = 20_000;
/// Connections of administrators. A client of client-go has one for each server, a tool that knows 1,000 spaces as 1,000
/// servers one for each of them.
pub(crate) const ADMINISTRATOR_CONNECTIONS_MAX: usize = 1_024;
/// Connections over which nobody has shown yet who they are. 2,000 handshakes a second, which is what two cores do, at two
/// seconds each over a bad line.
pub(crate) const UNVERIFIED_CONNECTIONS_MAX: usize = 4_096;
/// As many of those may come from one network: half, so that no single one keeps all others from being heard. Hundreds of
/// sites share the address of a load balancer, so this bounds nobody who has shown who they are.
pub(crate) const UNVERIFIED_SHARE_OF_ONE_NETWORK: usize = 2;
/// Descriptors for all but connections: the store (a database, its log and its index, for each of eight readers),
/// directories, logs, the health port with its 16 connections, and listeners; twice over.
pub(crate) const DESCRIPTORS_RESERVED: usize = 128;
/// Connections that have given way and are not closed yet. Nothing is accepted while there are more.
pub(crate) const CONNECTIONS_CLOSING_MAX: usize = 64;
/// What all of it takes, if the system gives as much.
pub(crate) const DESCRIPTORS_WANTED: usize = AGENT_CONNECTIONS_MAX
    + ADMINISTRATOR_CONNECTIONS_MAX
    + UNVERIFIED_CONNECTIONS_MAX
    + CONNECTIONS_CLOSING_MAX
    + DESCRIPTORS_RESERVED;
// What `deploy/` asks for.
const _: () = assert!(DESCRIPTORS_WANTED <= 65_536);

/// Connections that one key was the first to be verified on. An agent has six at most; behind a load balancer that keeps
/// connections open it is the first on some that serve others.
pub(crate) const CONNECTIONS_PER_KEY_MAX: usize = 32;
/// Requests of one key at once: a poll, a report, four for bodies, and those that a cut wire left behind. What is answered
/// counts until the answer is written, so that who does not read makes the hub hold no more than so many answers.
pub(crate) const REQUESTS_PER_KEY_MAX: usize = 32;

/// Requests in a row over one connection that are answered and not taken, at some 0.5 ms of signatures each: what was recorded
/// verifies for ever, and is nobody's fault whose key it is. An agent has one such for each run of the hub that it meets; a
/// load balancer's connection carries those of many, and is made anew when it is closed.
pub(crate) const UNTAKEN_IN_A_ROW_MAX: u32 = 64;

/// Requests of one key, on average and at once. An agent whose set changes makes five for each change, and reports ten
/// times a second at most; after a restart of the hub it sends a set of 100,000 in 100 pages.
pub(crate) const REQUESTS_PER_KEY_EVERY: Duration = Duration::from_millis(33);
pub(crate) const REQUESTS_PER_KEY_BURST: u32 = 1_000;

/// Bytes of one key's requests, as they are read: on average, a second, and at once. They are counted, and not kept. An
/// agent that is asked for everything says all that is kept of its target, and all of it again if it is asked once more
/// meanwhile; to read a megabyte takes ten milliseconds. Beyond that its reports wait, and nothing else does; who sends
/// twice as much is no agent.
pub(crate) const REQUEST_BYTES_PER_KEY_EVERY_SECOND: usize = 1 << 20;
pub(crate) const REQUEST_BYTES_PER_KEY_BURST: usize = 1_792 << 20;
const _: () =
    assert!(REQUEST_BYTES_PER_KEY_BURST >= 2 * (REPORTED_BYTES_BASE + REPORTED_BYTES_PER_OBJECT * DESIRED_OBJECTS_MAX));
/// Bytes of one target's reports that are kept: large statuses of a few, and 100,000 words of 600 bytes about what it holds
/// and nobody assigned …
pub(crate) const REPORTED_BYTES_BASE: usize = 64 << 20;
/// … and this for each object that is assigned. Statuses of Deployments have 1 KiB, their counts of Pods as much.
pub(crate) const REPORTED_BYTES_PER_OBJECT: usize = 8 << 10;
const _: () = assert!(REPORTED_BYTES_BASE > 16 * STATUS_BYTES_MAX + DESIRED_OBJECTS_MAX * 600);
/// How long it is shown that an agent said more than it may.
pub(crate) const BREACH_SHOWN: Duration = Duration::from_hours(1);
/// How long it is shown that an identity was used from another cluster, after it was seen there last. An agent that is refused
/// for that asks again within half a minute, so what is shown no more is switched off, or of the right cluster.
pub(crate) const QUARANTINE_SHOWN: Duration = Duration::from_hours(1);
/// How far the clock of an agent's machine may be from this one, by what each signs: as far as an agent takes it.
pub(crate) const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_hours(24);
/// How long it is shown that it was farther. An agent that is heard says something every 45 seconds.
pub(crate) const CLOCK_SHOWN: Duration = Duration::from_mins(10);
/// Bytes of what an agent says of its cluster and itself, each: versions have about 20.
pub(crate) const FACT_BYTES_MAX: usize = 128;

/// How long a TLS handshake may take.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(15);
/// How long after it was accepted a connection must have shown whose it is. Over the worst line that works at all a
/// handshake takes ten seconds.
pub(crate) const UNVERIFIED_MAX: Duration = Duration::from_secs(30);
/// How long a connection is kept that is verified and without a request, or waits for the rest of a request's head. Longer
/// than agents (50 s) and most load balancers (60 s) keep one, so that they close it, and no request meets a closed door.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(75);
/// Bytes of an answer that are handed to its connection at once: as many as a frame of HTTP/2 and a record of TLS hold.
pub(crate) const ANSWER_PIECE_BYTES: usize = 16 << 10;
/// Bytes on their way to a client that this system keeps for one connection: 256 KiB in each round trip of 100 ms, as for what
/// comes.
pub(crate) const SEND_BUFFER_BYTES: usize = 256 << 10;
/// After how long an answer is let go of that nobody reads on. Not how long it may take: over a line of 16 kbit/s, the slowest
/// that is meant, an answer of a megabyte takes nine minutes.
pub(crate) const ANSWER_UNREAD_MAX: Duration = Duration::from_mins(2);
/// What such a line carries, in bytes a second.
const SLOWEST_LINE: u64 = 2 << 10;
// Linux wakes a writer when a third of the buffer is free, of which it counts twice as much as it was told.
const _: () = assert!(2 * SEND_BUFFER_BYTES as u64 / 3 / SLOWEST_LINE < ANSWER_UNREAD_MAX.as_secs());
/// How long a connection may finish what is under way when it is to end; watches would take for ever.
pub(crate) const DRAIN: Duration = Duration::from_secs(3);
/// When an HTTP/2 connection, or the TCP beneath any, is asked whether anybody is there, and how long for.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(30);
pub(crate) const PING_MAX: Duration = Duration::from_secs(20);
/// Questions of TCP without an answer after which nobody is there.
pub(crate) const TCP_PINGS_MAX: u32 = 3;
// A poll is silent for its whole wait: what idles between requests must outlive none of it.
const _: () = assert!(IDLE_MAX.as_secs() > POLL_WAIT_SECONDS_MAX);

/// Streams of one HTTP/2 connection at once, as kube-apiserver has it. A load balancer opens further connections.
pub(crate) const STREAMS_MAX: u32 = 100;
/// Bytes of one stream that may be on the way unread, and of a whole connection: 256 KiB in each round trip of 100 ms are
/// 2.5 MiB a second. What is refused is never read, and let go of with the refusal.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 256 << 10;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of all headers of a request. Signed ones have 2 KiB; bearer tokens of identity providers up to 8.
pub(crate) const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Bytes that an HTTP/1.1 connection buffers, each way: a head, and what came with it. An unfinished head is kept of nobody
/// knows whom, so that there is no more room than for all headers and a request line of 8 KiB, of which an agent's has six: the
/// path of a URL, and a query.
pub(crate) const HTTP1_BUFFER_BYTES_MAX: usize = 24 << 10;
const _: () = assert!(HTTP1_BUFFER_BYTES_MAX >= HEADER_BYTES_MAX as usize + HUB_URL_BYTES_MAX + QUERY_BYTES_MAX + 1024);
const _: () = assert!(HEADER_BYTES_MAX as usize >= 4 * signature::HEADER_BYTES_MAX + (8 << 10) + 1024);
const _: () = assert!(UNVERIFIED_CONNECTIONS_MAX * HTTP1_BUFFER_BYTES_MAX <= 96 << 20);

/// Bytes of a request for a session, or to enrol, sent and unpacked: names of all that an agent understands, twice over, and
/// what it says of itself and its cluster.
pub(crate) const OPENING_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(OPENING_BYTES_MAX > 2 * CAPABILITIES_MAX * (CAPABILITY_BYTES_MAX + 3) + (16 << 10));

/// Bytes of agents' messages being received, in all: 640 of 100 KiB, which is a page of 1,000 reports as it travels.
pub(crate) const AGENT_BODY_BYTES_MAX: usize = 64 << 20;
/// The same of administrators' requests.
pub(crate) const ADMINISTRATOR_BODY_BYTES_MAX: usize = 32 << 20;
/// Bytes of one agent's messages being received: four of the largest.
pub(crate) const BODY_BYTES_PER_KEY_MAX: usize = 4 * REQUEST_BYTES_MAX;
const _: () = assert!(BODY_BYTES_PER_KEY_MAX * 4 <= AGENT_BODY_BYTES_MAX);
const _: () = assert!(REPORT_PAGE_BYTES_MAX * 64 <= AGENT_BODY_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX * 10 <= ADMINISTRATOR_BODY_BYTES_MAX);
/// Of the room that is free one agent's messages may have this share, and so much in any case: a page of 1,000 reports as it
/// travels. However many send as much as they can, room is left for whoever else comes: with four, half of all; with a
/// hundred, as much as each of them has.
pub(crate) const AGENT_SHARE_OF_FREE_ROOM: usize = 4;
pub(crate) const BODY_BYTES_PER_KEY_FREE: usize = 128 << 10;
const _: () = assert!(BODY_BYTES_PER_KEY_MAX <= AGENT_BODY_BYTES_MAX / AGENT_SHARE_OF_FREE_ROOM);
/// Places and copies that one page of rollups or reports looks at while it has the engine: at a microsecond or two for each, as
/// long as a full poll of an agent.
pub(crate) const VIRTUAL_PAGE_LOOKS_MAX: usize = 10_000;

/// Places of which is remembered when they showed otherwise: at some 300 bytes, 3 MB. A client that lists all of 50,000 objects and
/// watches from there needs those that changed meanwhile.
pub(crate) const VIEW_CHANGES_MAX: usize = 10_000;
/// Places of one commit that are told one by one; at two microseconds each, 4 ms in which others wait. What changes more is
/// read again whole.
pub(crate) const COMMIT_PLACES_MAX: usize = 2_000;
/// Places of one target that are told one by one where something becomes of the target.
pub(crate) const TARGET_PLACES_MAX: usize = 1_000;

/// Bytes of the reserve on the disk of the store, which is given up when that is full. Until there is room again it carries the
/// store's log once more, at the size to which that is cut back; who serves each of 10,000 targets, at 1 KiB; and the deletion of
/// 100,000 objects, at 200 bytes, before compaction gives the room of all those back.
pub(crate) const RESERVE_BYTES: u64 = 64 << 20;
const _: () = assert!((32 << 20) + 10_000 * 1_024 + 100_000 * 200 <= RESERVE_BYTES);
/// Bytes that are free beside the reserve when it is put aside, so that it is not given up again at once: the store's log once
/// more.
pub(crate) const RESERVE_FREE_BYTES: u64 = 32 << 20;
/// How often it is looked whether the reserve is there and, if not, whether there is room for it.
pub(crate) const RESERVE_LOOK_EVERY: Duration = Duration::from_mins(1);
/// Bytes that a start may take: the index of the store's log, what begins a run of the ledger, definitions and addresses that are
/// others now, each a commit of a megabyte at most, and two files.
pub(crate) const START_BYTES: u64 = 8 << 20;
const _: () = assert!(START_BYTES <= RESERVE_BYTES / 2);

/// How long a body that came waits until there is room for it.
pub(crate) const BODY_ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a body may take, whatever its size.
pub(crate) const BODY_GRACE: Duration = Duration::from_secs(15);
/// Bytes a second, on average, beyond that: half of what a bad mobile connection gives.
pub(crate) const BODY_BYTES_PER_SECOND_MIN: usize = 1 << 10;
/// The same while less than half of the room for bodies is left: who is slow gives way.
pub(crate) const BODY_BYTES_PER_SECOND_MIN_CROWDED: usize = 64 << 10;
