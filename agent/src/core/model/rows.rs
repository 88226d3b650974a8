//! Values of one size side by side, by number. Each allocated alone, as they come to be one by one while much else comes and
//! goes, tens of thousands of small ones would keep as many pages from being given back.

#[derive(Debug)]
pub(in crate::core) struct Rows<T> {
    rows: Vec<Option<T>>,
    free: Vec<Row>,
}

/// Where a value is. Not to be used after it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Row(u32);

impl<T> Rows<T> {
    pub(in crate::core) fn put(&mut self, value: T) -> Row {
        if let Some(row) = self.free.pop() {
            self.rows[row.index()] = Some(value);
            return row;
        }
        let row = Row(self.rows.len().try_into().expect("a target has some tens of thousands of objects"));
        self.rows.push(Some(value));
        row
    }

    pub(in crate::core) fn get(&self, row: Row) -> &T {
        self.rows[row.index()].as_ref().expect(TAKEN_ONCE)
    }

    pub(in crate::core) fn get_mut(&mut self, row: Row) -> &mut T {
        self.rows[row.index()].as_mut().expect(TAKEN_ONCE)
    }

    pub(in crate::core) fn take(&mut self, row: Row) -> T {
        let value = self.rows[row.index()].take().expect(TAKEN_ONCE);
        self.free.push(row);
        if self.free.len() == self.rows.len() {
            *self = Self::default();
        }
        value
    }
}

const TAKEN_ONCE: &str = "who has a row has not taken it";

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), free: Vec::new() }
    }
}

impl Row {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests;
