//! The writes of a batch, in chunks that the store takes.

/// Operations in one chunk. The store takes 100 in a commit.
pub const CHUNK_OPS_MAX: usize = 100;
/// Bytes of keys and values in one chunk. The store takes half as much again in a commit, for the objects of spaces; a chunk is
/// smaller, so that what is written beside it waits for less.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// One record to write; none deletes it. Writing it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// Of its key and its value.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// What a batch writes, stage by stage: see [`Batch::stages`].
///
/// [`Batch::stages`]: super::Batch::stages
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    pub(super) all: Vec<Vec<Write>>,
    /// The number of chunks up to the end of each stage.
    ends: Vec<usize>,
}

impl Chunks {
    /// Of stages that each consist of groups: what is of one group is in one chunk. What `begins` says comes before all of
    /// them, unless one chunk holds it all; what `ends` says comes last.
    pub(super) fn of(begins: Write, stages: impl IntoIterator<Item = Vec<Vec<Write>>>, ends: Write) -> Self {
        let mut stages: Vec<_> = stages.into_iter().collect();
        stages.push(vec![vec![ends]]);
        let writes = || stages.iter().flatten().flatten();
        if !fits(writes().count(), writes().map(Write::bytes).sum()) {
            stages.insert(0, vec![vec![begins]]);
        }
        let mut chunks = Self::default();
        for groups in stages {
            chunks.add(chunked(groups));
        }
        chunks
    }

    /// The chunks of each stage.
    pub(super) fn stages(&self) -> impl Iterator<Item = &[Vec<Write>]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.all[begin..*end])
    }

    /// What fits into the one chunk of the stage before needs no stage of its own: a chunk is written at once.
    fn add(&mut self, mut stage: Vec<Vec<Write>>) {
        let of_former = self.ends.last().map_or(0, |end| end - self.ends.iter().rev().nth(1).unwrap_or(&0));
        match (self.all.last_mut(), stage.as_mut_slice()) {
            (_, []) => {}
            (Some(former), [only]) if of_former == 1 && fits(former.len() + only.len(), size(former) + size(only)) => {
                former.append(only);
            }
            (_, _) => {
                self.all.append(&mut stage);
                self.ends.push(self.all.len());
            }
        }
    }
}

fn fits(ops: usize, bytes: usize) -> bool {
    ops <= CHUNK_OPS_MAX && bytes <= CHUNK_BYTES_MAX
}

/// Whether one chunk holds all of it.
pub(super) fn is_chunk(writes: &[Write]) -> bool {
    fits(writes.len(), size(writes))
}

fn size(writes: &[Write]) -> usize {
    writes.iter().map(Write::bytes).sum()
}

/// Splits writes, in order, into chunks that the store takes. What is of one group is in one chunk, unless that alone is too much.
pub fn chunked(groups: Vec<Vec<Write>>) -> Vec<Vec<Write>> {
    let mut chunks: Vec<Vec<Write>> = Vec::new();
    let mut filled = 0;
    for group in groups {
        let whole = size(&group);
        let mut apart = fits(group.len(), whole)
            && chunks.last().is_some_and(|chunk| !fits(chunk.len() + group.len(), filled + whole));
        for write in group {
            match chunks.last_mut() {
                Some(chunk) if !apart && fits(chunk.len() + 1, filled + write.bytes()) => {
                    filled += write.bytes();
                    chunk.push(write);
                }
                _ => {
                    filled = write.bytes();
                    chunks.push(vec![write]);
                    apart = false;
                }
            }
        }
    }
    chunks
}
