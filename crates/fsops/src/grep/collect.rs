//! Sorts the matches of many threads, and decides when there are enough.

use std::collections::BTreeMap;

use podbay_proto::files::FileMatches;

use crate::budget::Gaps;

/// The most bytes of text in one result.
const MAX_BYTES: usize = 24 << 20;

/// The matches of all searching threads.
#[derive(Debug)]
pub(super) struct Collector {
    most: Option<u64>,
    /// Matches by the number of their batch.
    batches: BTreeMap<u64, Vec<FileMatches>>,
    /// All batches below this number are done.
    done: u64,
    /// How many lines those have.
    count: u64,
    bytes: usize,
}

impl Collector {
    pub(super) fn new(most: Option<u64>) -> Self {
        Self { most, batches: BTreeMap::new(), done: 0, count: 0, bytes: 0 }
    }

    /// Adds the matches of a batch.
    pub(super) fn add(&mut self, number: u64, found: Vec<FileMatches>) {
        self.bytes += found.iter().map(size).sum::<usize>();
        self.batches.insert(number, found);
        // Only batches before the first missing one count: so the result is the first matches in order, whichever thread was faster.
        while let Some(batch) = self.batches.get(&self.done) {
            self.count += batch.iter().map(|file| file.lines.len() as u64).sum::<u64>();
            self.done += 1;
        }
    }

    /// Whether further matches wouldn't change the result.
    pub(super) fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.count > most) || self.bytes > MAX_BYTES
    }

    /// The files in order, how many lines they have, and what was left out.
    pub(super) fn finish(self) -> (Vec<FileMatches>, u64, Gaps) {
        let mut gaps = Gaps::default();
        let mut files = Vec::new();
        let mut count = 0;
        let mut bytes = 0;
        for mut file in self.batches.into_values().flatten() {
            let left = self.most.unwrap_or(u64::MAX) - count;
            if file.lines.len() as u64 > left {
                gaps.limit(format!("there are more than {} matching lines", self.most.unwrap_or(0)));
                file.lines.truncate(left as usize);
            }
            bytes += size(&file);
            if bytes > MAX_BYTES {
                gaps.limit(format!("the matching lines have more than {MAX_BYTES} bytes; be more specific"));
                break;
            }
            count += file.lines.len() as u64;
            if !file.lines.is_empty() {
                files.push(file);
            }
        }
        // The working directory came first, out of order.
        files.sort_unstable_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        (files, count, gaps)
    }
}

fn size(file: &FileMatches) -> usize {
    file.path.as_bytes().len() + file.lines.iter().map(|line| line.text.len() + 32).sum::<usize>()
}
