//! Every bound that both sides must agree on, with its arithmetic. Bounds of one side live in that side's `limits`.

/// Bytes of a label value, and of an RFC 1123 label (Kubernetes API conventions).
pub const LABEL_VALUE_BYTES_MAX: usize = 63;
/// Bytes of a UID. Kubernetes writes UUIDs of 36; others may write up to this.
pub const UID_BYTES_MAX: usize = 128;

/// Objects that one target's desired set may hold, twice over for headroom.
pub const DESIRED_OBJECTS_MAX: usize = 100_000;

/// Entries in one page of a desired index. About 500 bytes each as JSON, 60 compressed: a page is under 1 MiB raw.
pub const DESIRED_PAGE_ENTRIES_MAX: usize = 2_000;

/// Bytes of one page of a desired index, with the policies that its entries name: a page has at least one entry, whatever that
/// takes. A full page of usual entries takes half of it.
pub const DESIRED_PAGE_BYTES_MAX: usize = 2 << 20;
const _: () = assert!(DESIRED_PAGE_ENTRIES_MAX * 1000 <= DESIRED_PAGE_BYTES_MAX);

/// Approved removals in one answer: of a few hundred bytes each, as a page of entries.
pub const APPROVED_PAGE_REMOVALS_MAX: usize = 2_000;

/// Bytes of body text that one answer may hold before compression. Proxies commonly refuse more than 1 MiB.
pub const BODY_BATCH_BYTES_MAX: usize = 1 << 20;
/// Bodies that one request may ask for: a batch of the smallest useful bodies (about 256 bytes) fills an answer.
pub const BODY_BATCH_COUNT_MAX: usize = BODY_BATCH_BYTES_MAX / 256;
/// Bytes of one rendered object. etcd refuses requests above 1.5 MiB, so no target could hold more.
pub const BODY_BYTES_MAX: usize = 3 << 20;

/// Object reports in one message, whichever of this and [`REPORT_PAGE_BYTES_MAX`] is reached first.
pub const REPORT_PAGE_OBJECTS_MAX: usize = 1_000;
/// Bytes of one report message before compression.
pub const REPORT_PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of one object's returned status; a larger one is replaced by a reason. Two fit a page with room for the rest.
pub const STATUS_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(STATUS_BYTES_MAX * 2 < REPORT_PAGE_BYTES_MAX);
/// Levels of nesting in one object's returned status; a deeper one is replaced by that reason, too. Those of Kubernetes have
/// six. What parses JSON here reads 127, and who owns each field is kept six levels deeper than the field.
pub const STATUS_LEVELS_MAX: usize = 64;
const _: () = assert!(STATUS_LEVELS_MAX + 6 < 127);
/// Paths of a status that one policy asks for; where it would be more, it asks for the whole. The rules of an aggregate read
/// about ten, and three of them may be merged.
pub const REPORT_PATHS_MAX: usize = 32;
/// Bytes of one such path. Twice what the longest in the status of a built-in kind takes with a filter; all of one policy are
/// 8 KiB.
pub const REPORT_PATH_BYTES_MAX: usize = 256;
const _: () = assert!(REPORT_PATHS_MAX * REPORT_PATH_BYTES_MAX <= 8 << 10);
/// Examples named of what was made of one object, for each resource. More than a person reads at a glance.
pub const ASSOCIATED_WORST_MAX: usize = 5;
/// Reasons counted by name of what was made of one object, for each resource. Kubernetes itself has about twenty in all.
pub const ASSOCIATED_REASONS_MAX: usize = 16;
/// Bytes of one such reason; those of Kubernetes have at most 30.
pub const ASSOCIATED_REASON_BYTES_MAX: usize = 64;
/// Bytes of the counts of one object: four resources, each with so many reasons and examples of two names (of at most 253
/// bytes each) and a reason, and half as much again for the names of fields.
pub const ASSOCIATED_BYTES_MAX: usize = 4
    * (ASSOCIATED_REASONS_MAX * ASSOCIATED_REASON_BYTES_MAX
        + ASSOCIATED_WORST_MAX * (2 * 253 + ASSOCIATED_REASON_BYTES_MAX))
    * 3
    / 2;
const _: () = assert!(ASSOCIATED_BYTES_MAX < REPORT_PAGE_BYTES_MAX / 16);

/// Bytes of a message to a person in a report.
pub const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Bytes of a whole link message as received, compressed or not, and after decompression. The largest is a body batch
/// that holds one body of [`BODY_BYTES_MAX`], JSON-escaped.
pub const LINK_MESSAGE_BYTES_MAX: usize = 8 << 20;
const _: () = assert!(LINK_MESSAGE_BYTES_MAX > 2 * BODY_BYTES_MAX + BODY_BATCH_BYTES_MAX);

/// Bytes of what an agent sends at once, compressed or not, and after decompression. The largest asks for
/// [`BODY_BATCH_COUNT_MAX`] bodies, by keys with names of up to 253 bytes each.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
const _: () = assert!(REQUEST_BYTES_MAX >= BODY_BATCH_COUNT_MAX * 1024);
const _: () = assert!(REQUEST_BYTES_MAX > 2 * REPORT_PAGE_BYTES_MAX);

/// Seconds that a long poll may wait. Middleboxes commonly cut idle connections at 60 s, some at 50.
pub const POLL_WAIT_SECONDS_MAX: u64 = 45;
/// Seconds below which halving a poll's wait stops.
pub const POLL_WAIT_SECONDS_MIN: u64 = 5;

/// Bytes of a hub's URL: what proxies and servers commonly take as a request line.
pub const HUB_URL_BYTES_MAX: usize = 2 << 10;
/// Bytes of one authority's certificate, DER. One with an RSA key of 8,192 bits and many extensions has 4 KiB.
pub const AUTHORITY_BYTES_MAX: usize = 8 << 10;
/// URLs that a hub announces, and authorities: its own, the one it had or will have, and those of two proxies.
pub const HUB_ADDRESSES_MAX: usize = 4;
/// URLs of its hub that an agent keeps, and authorities: all that is announced, as many from before, so that a hub may change
/// all of them at once, and as many that a token names.
pub const HUB_ADDRESSES_KNOWN_MAX: usize = 3 * HUB_ADDRESSES_MAX;
/// Enrolment tokens that an agent remembers to have seen. Only one is mounted at a time.
pub const TOKENS_SEEN_MAX: usize = 64;
