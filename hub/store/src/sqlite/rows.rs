//! The `versions` table: what a row is, and every statement that reads or writes one.
//!
//! A row is one version of one key. Rows are numbered in commit order ([`RowId`]), so history is a
//! scan of the table; the index on the key holds (key, row number) and no values, so that finding
//! and counting keys never reads one.

use super::limits::{COMPACTION_SCAN, REPLAY_BYTES, REPLAY_EVENTS};
use crate::{Commit, Compare, Event, Item, KeyRange, MAX_COMMIT_OPS, Op, Revision};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Statements kept compiled per connection: the ones of this file, with room to spare.
pub(super) const CACHED_STATEMENTS: usize = 16;

pub(super) const TABLES: &str = "
    CREATE TABLE versions (
        id      INTEGER PRIMARY KEY, -- see RowId
        key     BLOB NOT NULL,
        created INTEGER NOT NULL,    -- revision; zero in a tombstone
        value   BLOB NOT NULL        -- empty in a tombstone
    );
    CREATE INDEX versions_by_key ON versions (key);
    CREATE TABLE position (
        only     INTEGER PRIMARY KEY CHECK (only = 1),
        revision INTEGER NOT NULL,
        floor    INTEGER NOT NULL
    );
    INSERT INTO position VALUES (1, 0, 0);
";

const NEWEST: &str = "SELECT id, created, value FROM versions INDEXED BY versions_by_key
    WHERE key = ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1";
const BY_ID: &str = "SELECT id, created, value FROM versions WHERE id = ?1";
// The lowest bit of a row number says whether the version is live.
const PAGE: &str = "SELECT key, max(id) FROM versions INDEXED BY versions_by_key
    WHERE key >= ?1 AND key < ?2 AND id <= ?3
    GROUP BY key HAVING max(id) & 1 ORDER BY key LIMIT ?4";
const COUNT: &str = "SELECT count(*) FROM (
        SELECT max(id) AS newest FROM versions INDEXED BY versions_by_key
        WHERE key >= ?1 AND key < ?2 AND id <= ?3 GROUP BY key
    ) WHERE newest & 1";
const HISTORY: &str = "SELECT id, created, value, key FROM versions NOT INDEXED
    WHERE id > ?1 AND id <= ?2 AND key >= ?3 AND key < ?4 ORDER BY id";
const INSERT: &str = "INSERT INTO versions (id, key, created, value) VALUES (?1, ?2, ?3, ?4)";
const DELETE: &str = "DELETE FROM versions WHERE id = ?1";
const ENTRIES: &str = "SELECT key, id FROM versions INDEXED BY versions_by_key
    WHERE (key, id) >= (?1, ?2) ORDER BY key, id LIMIT ?3";

/// A row number: revision (55 bits), the operation's place in its commit (7 bits), and one bit that
/// is set in a live version and clear in a tombstone. It orders rows as they were committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowId(i64);

const ORDINAL_BITS: u32 = 7;
const REVISION_SHIFT: u32 = ORDINAL_BITS + 1;
const LIVE: u64 = 1;
const _: () = assert!(MAX_COMMIT_OPS <= 1 << ORDINAL_BITS);

impl RowId {
    fn live(revision: Revision, ordinal: usize) -> Self {
        Self((revision.0 << REVISION_SHIFT | (ordinal as u64) << 1 | LIVE).cast_signed())
    }

    fn tombstone(revision: Revision, ordinal: usize) -> Self {
        Self((revision.0 << REVISION_SHIFT | (ordinal as u64) << 1).cast_signed())
    }

    /// The highest number a row of `revision` can have.
    fn last_of(revision: Revision) -> Self {
        Self(((revision.0 + 1) << REVISION_SHIFT).cast_signed() - 1)
    }

    fn revision(self) -> Revision {
        Revision(self.0.cast_unsigned() >> REVISION_SHIFT)
    }

    fn is_live(self) -> bool {
        self.0.cast_unsigned() & LIVE != 0
    }
}

/// Where a store stands, as persisted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) revision: Revision,
    pub(super) floor: Revision,
}

pub(super) fn position(conn: &Connection) -> rusqlite::Result<Position> {
    conn.query_row("SELECT revision, floor FROM position", [], |row| {
        Ok(Position { revision: revision_in(row, 0)?, floor: revision_in(row, 1)? })
    })
}

pub(super) fn set_revision(conn: &Connection, revision: Revision) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE position SET revision = ?1")?.execute([revision.0.cast_signed()])?;
    Ok(())
}

pub(super) fn set_floor(conn: &Connection, floor: Revision) -> rusqlite::Result<()> {
    conn.execute("UPDATE position SET floor = ?1", [floor.0.cast_signed()])?;
    Ok(())
}

/// Reads one key as it was at `at`.
pub(super) fn get(conn: &Connection, key: &Bytes, at: Revision) -> rusqlite::Result<Option<Item>> {
    version(conn, key, RowId::last_of(at))
}

/// Part of a range.
pub(super) struct Listed {
    pub(super) items: Vec<Item>,
    /// Whether there are keys after those.
    pub(super) more: bool,
}

/// Reads at most `limit` keys at `at`, and finds one more.
pub(super) fn list(conn: &Connection, range: &KeyRange, at: Revision, limit: usize) -> rusqlite::Result<Listed> {
    // One transaction, so that a compaction cannot take a row between finding and reading it.
    let snapshot = conn.unchecked_transaction()?;
    let upto = RowId::last_of(at).0;
    let mut items = Vec::new();
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut find = snapshot.prepare_cached(PAGE)?;
    let mut read = snapshot.prepare_cached(BY_ID)?;
    let mut found = find.query(params![&range.start[..], &range.end[..], upto, one_more])?;
    while let Some(row) = found.next()? {
        if items.len() == limit {
            return Ok(Listed { items, more: true });
        }
        let key = bytes_in(row, 0)?;
        let id: i64 = row.get(1)?;
        items.push(read.query_row([id], |row| item_in(row, key))?);
    }
    Ok(Listed { items, more: false })
}

/// Counts the keys at `at`, from the index alone.
pub(super) fn count(conn: &Connection, range: &KeyRange, at: Revision) -> rusqlite::Result<u64> {
    let bounds = params![&range.start[..], &range.end[..], RowId::last_of(at).0];
    conn.prepare_cached(COUNT)?.query_row(bounds, |row| row.get::<_, i64>(0).map(i64::cast_unsigned))
}

/// What became of one commit within the transaction of its group.
pub(super) enum Applied {
    Written(Vec<Event>),
    Conflict { compare: usize, found: Option<Item> },
}

/// Evaluates the compares against everything written so far and, if all hold, writes the operations
/// as `revision`. No events means that there was nothing to do and the revision is not used up.
pub(super) fn apply(conn: &Connection, commit: &Commit, revision: Revision) -> rusqlite::Result<Applied> {
    for (compare, condition) in commit.compare.iter().enumerate() {
        let (key, expected) = match condition {
            Compare::Absent(key) => (key, None),
            Compare::Modified(key, revision) => (key, Some(*revision)),
        };
        let found = newest(conn, key)?;
        if found.as_ref().map(|item| item.modified) != expected {
            return Ok(Applied::Conflict { compare, found });
        }
    }
    let mut events = Vec::with_capacity(commit.ops.len());
    for (ordinal, op) in commit.ops.iter().enumerate() {
        match op {
            Op::Put(key, value) => {
                let previous = newest(conn, key)?;
                let created = previous.as_ref().map_or(revision, |item| item.created);
                insert(conn, RowId::live(revision, ordinal), key, created, value)?;
                let item = Item { key: key.clone(), value: value.clone(), created, modified: revision };
                events.push(Event::Put { item, previous });
            }
            Op::Delete(key) => {
                if let Some(previous) = newest(conn, key)? {
                    insert(conn, RowId::tombstone(revision, ordinal), key, Revision(0), &Bytes::new())?;
                    events.push(Event::Delete { key: key.clone(), at: revision, previous });
                }
            }
        }
    }
    Ok(Applied::Written(events))
}

/// A stretch of history: the changes of a range, and how far they reach.
pub(super) struct Replayed {
    pub(super) events: Vec<Event>,
    /// Every change up to here is in `events` or was before them.
    pub(super) through: Revision,
}

/// Reads the changes of `range` in `(after, upto]`, in order. Stops early, between two commits, once the
/// stretch is large.
pub(super) fn replay(
    conn: &Connection,
    range: &KeyRange,
    after: Revision,
    upto: Revision,
) -> rusqlite::Result<Replayed> {
    let snapshot = conn.unchecked_transaction()?;
    let mut scan = snapshot.prepare_cached(HISTORY)?;
    let bounds = params![RowId::last_of(after).0, RowId::last_of(upto).0, &range.start[..], &range.end[..]];
    let mut rows = scan.query(bounds)?;
    let mut events: Vec<Event> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let id = RowId(row.get(0)?);
        if let Some(last) = events.last().map(Event::revision)
            && (events.len() >= REPLAY_EVENTS || bytes >= REPLAY_BYTES)
            && last != id.revision()
        {
            return Ok(Replayed { events, through: last });
        }
        let key = bytes_in(row, 3)?;
        let previous = version(&snapshot, &key, RowId(id.0 - 1))?;
        bytes += previous.as_ref().map_or(0, |item| item.value.len());
        if id.is_live() {
            let item = item_in(row, key)?;
            bytes += item.value.len();
            events.push(Event::Put { item, previous });
        } else if let Some(previous) = previous {
            events.push(Event::Delete { key, at: id.revision(), previous });
        }
    }
    Ok(Replayed { events, through: upto })
}

/// How far a compaction has come through the index.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    key: Vec<u8>,
    id: i64,
}

/// Looks at the next index entries from `cursor` and deletes those that no reader at or after `floor` can
/// see: versions superseded at or before it, and tombstones at or before it. Returns where to go on.
pub(super) fn compact_some(conn: &Connection, cursor: &Cursor, floor: Revision) -> rusqlite::Result<Option<Cursor>> {
    let sql_limit = i64::try_from(COMPACTION_SCAN).unwrap_or(i64::MAX);
    let entries = conn
        .prepare_cached(ENTRIES)?
        .query_map(params![cursor.key, cursor.id, sql_limit], |row| Ok(Cursor { key: row.get(0)?, id: row.get(1)? }))?
        .collect::<rusqlite::Result<Vec<Cursor>>>()?;
    let is_last_batch = entries.len() < COMPACTION_SCAN;
    let floor = RowId::last_of(floor).0;
    let mut delete = conn.prepare_cached(DELETE)?;
    for (place, entry) in entries.iter().enumerate() {
        let next = entries.get(place + 1);
        if next.is_none() && !is_last_batch {
            break; // Its successor is not known yet: the next batch starts with it.
        }
        let superseded = next.is_some_and(|next| next.key == entry.key && next.id <= floor);
        if entry.id <= floor && (superseded || !RowId(entry.id).is_live()) {
            delete.execute([entry.id])?;
        }
    }
    Ok(entries.into_iter().next_back().filter(|_| !is_last_batch))
}

fn insert(conn: &Connection, id: RowId, key: &Bytes, created: Revision, value: &Bytes) -> rusqlite::Result<()> {
    let created = created.0.cast_signed();
    conn.prepare_cached(INSERT)?.execute(params![id.0, &key[..], created, &value[..]])?;
    Ok(())
}

fn newest(conn: &Connection, key: &Bytes) -> rusqlite::Result<Option<Item>> {
    version(conn, key, RowId(i64::MAX))
}

/// The version of `key` with the highest number up to `upto`, unless that is a tombstone.
fn version(conn: &Connection, key: &Bytes, upto: RowId) -> rusqlite::Result<Option<Item>> {
    let found = conn
        .prepare_cached(NEWEST)?
        .query_row(params![&key[..], upto.0], |row| {
            let live = RowId(row.get(0)?).is_live();
            live.then(|| item_in(row, key.clone())).transpose()
        })
        .optional()?;
    Ok(found.flatten())
}

/// Reads an item from a row that starts with id, created, value.
fn item_in(row: &Row<'_>, key: Bytes) -> rusqlite::Result<Item> {
    let modified = RowId(row.get(0)?).revision();
    Ok(Item { key, value: bytes_in(row, 2)?, created: revision_in(row, 1)?, modified })
}

fn bytes_in(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    row.get::<_, Vec<u8>>(column).map(Bytes::from)
}

fn revision_in(row: &Row<'_>, column: usize) -> rusqlite::Result<Revision> {
    row.get::<_, i64>(column).map(|number| Revision(number.cast_unsigned()))
}
